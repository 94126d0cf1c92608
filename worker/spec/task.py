"""Tasks of a workload on its model: `Workload.task`, one closed spec a kind, distinguished by `kind` (torch-free).

`task: sft` is short for `task: {kind: sft}`. A kind says which data it needs and where the workload's defaults differ
for it; `worker/tasks/registry.py` has its losses.
"""

from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal

from pydantic import BeforeValidator, Field

from worker.catalog import datasets as data_catalog
from worker.catalog import presets
from worker.catalog.datasets import DataKind
from worker.schema import Spec, SpecFault

if TYPE_CHECKING:
    from worker.spec.run import Workload

LINEAR_MODEL: Final = "linear"
"""The model of a regression: one weight a covariate."""


class TaskSpec(Spec):
    """The base of all kinds."""

    kind: str
    data_kind: ClassVar[DataKind]
    defaults: ClassVar[Mapping[str, Any]] = {}
    """Fields of the workload whose default is another one for this task, nested as in the workload."""
    loss_name: ClassVar[str] = "validation loss"
    """The name of the validation loss for people."""
    loss_unit: ClassVar[str] = " nats"
    in_nats_per_token: ClassVar[bool] = False
    """Whether exp() of the losses is a perplexity."""
    batch_unit: ClassVar[str] = "tokens"
    """The unit of a batch for people."""
    computes_in: ClassVar[str | None] = None
    """The type that it computes in, whatever `precision` says."""
    divisible: ClassVar[bool] = True
    """Whether several processes can share a batch."""
    only_passes: ClassVar[bool] = True
    """Whether a step computes no more than forward and backward pass of its batch: else its FLOPs are not known."""

    @abstractmethod
    def misfits(self, workload: "Workload") -> list[SpecFault]:
        """Return every field of the workload around it that this task cannot be trained with."""


class LanguageTask(TaskSpec):
    """The base of the tasks that train a language model."""

    def misfits(self, workload: "Workload") -> list[SpecFault]:
        """Return faults: no language model, sequences longer than its positions, more tokens than it has, weights of
        another."""
        if workload.model == LINEAR_MODEL:
            allowed = f"is not a language model, which the task {self.kind} trains: {', '.join(presets.names())}"
            return [(("model",), workload.model, allowed)]
        faults: list[SpecFault] = []
        model, length = presets.preset(workload.model), workload.data.sequence_length_tokens
        if length > model.max_positions:
            allowed = f"must be at most {model.max_positions}, the positions of {model.name}"
            faults.append((("data", "sequence_length_tokens"), length, allowed))
        vocabulary = data_catalog.vocabulary_size(workload.data.tokenizer) or 0
        if vocabulary > model.vocabulary_size and not model.vocabulary_of_tokenizer:
            allowed = f"has {vocabulary} tokens, more than the {model.vocabulary_size} of {model.name}"
            faults.append((("data", "tokenizer"), workload.data.tokenizer, allowed))
        weights = presets.PUBLISHED_WEIGHTS.get(workload.initial_weights or "")
        if weights is not None and weights.preset != model.name:
            allowed = f"are the weights of {weights.preset}, not of {model.name}"
            faults.append((("initial_weights",), workload.initial_weights, allowed))
        return faults


class PretrainTask(LanguageTask):
    """Next-token prediction on running text."""

    kind: Literal["pretrain"] = "pretrain"
    in_nats_per_token = True
    data_kind = DataKind.TEXT


class ConversationTask(LanguageTask):
    """The base of the tasks on conversations, which are tokenised as they are: no tokenizer is trained on them."""

    data_kind = DataKind.CONVERSATIONS
    defaults: ClassVar[Mapping[str, Any]] = {"data": {"dataset": "chats"}}

    def misfits(self, workload: "Workload") -> list[SpecFault]:
        """Return a language task's faults, and one if the tokenizer is not the catalog's."""
        faults, name = super().misfits(workload), workload.data.tokenizer
        tokenizers = tuple(entry.name for entry in data_catalog.TOKENIZERS)
        if name not in tokenizers:
            faults.append((("data", "tokenizer"), name, f"must be one of {', '.join(tokenizers)} for conversations"))
        return faults


class SftTask(ConversationTask):
    """Supervised fine-tuning: next-token prediction on the answers of conversations, given their prompts."""

    kind: Literal["sft"] = "sft"
    in_nats_per_token = True


class RlhfTask(ConversationTask):
    """ReMax: policy gradient on a reward, with the greedy answer's reward as baseline (arXiv 2310.10505)."""

    kind: Literal["rlhf"] = "rlhf"
    answer_tokens: Annotated[int, Field(strict=True, ge=1, le=65_536)] = 32
    """Tokens of the longest answer; the rest of `data.sequence_length_tokens` is for the prompt."""
    reward: Literal["printable", "brevity", "model"] = "model"
    """`model`: a reward model of the trained model's own architecture with a scalar head, weights drawn from
    `reward_seed`; `printable`: printable ASCII in the answer, over the longest answer; `brevity`: 1 for an empty
    answer, 0 for the longest."""
    reward_seed: Annotated[int, Field(strict=True, ge=0, le=2**31 - 1)] = 0
    kl_weight: Annotated[float, Field(strict=True, ge=0, le=1e3)] = 0.05
    """Reward lost per nat of log(policy / reference) of each token."""
    temperature: Annotated[float, Field(strict=True, gt=0, le=10)] = 1.0
    """Temperature of the sampled answers and of the policy that is trained."""
    loss_name, loss_unit = "negated KL-penalized reward of held-out answers", ""
    only_passes = False  # it generates, rewards and scores answers too
    divisible = False  # the answers of a batch are weighed together

    def misfits(self, workload: "Workload") -> list[SpecFault]:
        """Return a language task's faults, and one if answers leave no room for a prompt."""
        faults, length = super().misfits(workload), workload.data.sequence_length_tokens
        if self.answer_tokens >= length:
            allowed = f"must be below data.sequence_length_tokens = {length}: the rest is the prompt's"
            faults.append((("task", "answer_tokens"), self.answer_tokens, allowed))
        if workload.execution.compile:
            allowed = "must be false: answers grow, and every length would be compiled anew"
            faults.append((("execution", "compile"), True, allowed))
        if self.reward == "printable" and workload.data.tokenizer != "byte":
            allowed = f"needs data.tokenizer: byte, not {workload.data.tokenizer}: it looks at bytes"
            faults.append((("task", "reward"), self.reward, allowed))
        return faults


class RegressionTask(TaskSpec):
    """The linear regression of AdaPM's theorem 1: y = <x, W*> + noise, x ~ N(0, Sigma), from W = 0.

    Sigma is diagonal with Sigma_ii = i^-a, and Sigma_ii (W*_i)^2 = i^-b, i = 1 … dimension.
    """

    kind: Literal["regression"] = "regression"
    dimension: Annotated[int, Field(strict=True, ge=1, le=1_000_000)] = 1_000
    a: Annotated[float, Field(strict=True, ge=1, le=10)] = 2.0
    """The exponent of the covariance's eigenvalues; the theorem asks for 1 or more."""
    b: Annotated[float, Field(strict=True, ge=1, le=10)] = 1.5
    """The exponent of the signal's energy; below a, momentum should help."""
    noise: Annotated[float, Field(strict=True, ge=0, le=1e6)] = 0.1
    """Standard deviation of the noise in y."""
    data_kind = DataKind.DRAWN
    loss_name, loss_unit = "excess risk", ""
    divisible = False  # a step is a few thousand multiplications
    batch_unit = "samples"
    computes_in = "float64"
    defaults: ClassVar[Mapping[str, Any]] = {
        "model": LINEAR_MODEL,
        "data": {"dataset": "drawn", "sequence_length_tokens": 1},
        "budget": {"batch_sequences": 1},
        "schedule": {"shape": "phases"},
        "evaluation": {"sequences": 1},
        "clip_grad_norm": None,
    }

    def misfits(self, workload: "Workload") -> list[SpecFault]:
        """Return the faults of a workload that a regression cannot train, such as another model or low precision."""
        faults: list[SpecFault] = []
        if workload.model != LINEAR_MODEL:
            faults.append((("model",), workload.model, f"must be {LINEAR_MODEL}: a regression has a model of its own"))
        if workload.data.sequence_length_tokens != 1:
            length = workload.data.sequence_length_tokens
            allowed = "must be 1: a regression draws budget.batch_sequences samples a step"
            faults.append((("data", "sequence_length_tokens"), length, allowed))
        if workload.initial_weights is not None:
            faults.append((("initial_weights",), workload.initial_weights, "must be null: W starts at 0"))
        for name in ("activation_checkpointing", "compile"):
            if getattr(workload.execution, name):
                faults.append((("execution", name), True, "must be false: a regression has no layers"))
        if workload.probes is not None:
            faults.append((("probes",), "given", "must be null: a regression has no weight matrix to observe"))
        if workload.precision != "fp32":
            faults.append((("precision",), workload.precision, "must be fp32: a regression computes in full precision"))
        return faults


KINDS: Final[Mapping[str, type[TaskSpec]]] = {
    task.model_fields["kind"].default: task for task in (PretrainTask, SftTask, RlhfTask, RegressionTask)
}


def expand_shorthand(task: Any) -> Any:
    """Return `{"kind": "sft"}` for `"sft"`, and anything else as it is."""
    return {"kind": task} if isinstance(task, str) else task


AnyTask = Annotated[
    PretrainTask | SftTask | RlhfTask | RegressionTask, Field(discriminator="kind"), BeforeValidator(expand_shorthand)
]


def defaults_of(task: Any) -> Mapping[str, Any]:
    """Return the workload's defaults for a task as a user may write it; none if it is not a task at all."""
    task = expand_shorthand(task)
    kind = task.get("kind") if isinstance(task, Mapping) else getattr(task, "kind", None)
    return KINDS[kind].defaults if isinstance(kind, str) and kind in KINDS else {}


def fill_defaults(values: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return `values`, completed from `defaults`, also inside nested mappings."""
    fields = {**defaults, **values}
    for name, default in defaults.items():
        if isinstance(default, Mapping) and isinstance(fields[name], Mapping):
            fields[name] = fill_defaults(fields[name], default)
    return fields
