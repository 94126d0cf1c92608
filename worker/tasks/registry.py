"""Every kind of task with its data, its model and its losses: how `run.py` gets from a spec to what is trained."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from torch import nn

from worker.data.conversations import ConversationDataset, ensure_conversations
from worker.data.preparation import ensure_dataset
from worker.data.shards import TokenDataset
from worker.data.weights import InitialWeights
from worker.distributed.process_group import ProcessGroup
from worker.models import build_model
from worker.spec.run import RunSpec
from worker.tasks.next_token import FineTuning, Pretraining
from worker.tasks.regression import LinearModel, LinearProblem, Regression, linear_problem
from worker.tasks.remax import ReMax
from worker.tasks.task import Task

CheckStop = Callable[[], None]
"""Called while something is prepared or waited for; raises where the run is to end."""


class TaskData(Protocol):
    """What a task is trained on, open and checked."""

    @property
    def data_hash(self) -> str:
        """SHA-256 over all of it."""


@dataclass(frozen=True, kw_only=True)
class TaskEntry:
    """One kind of task."""

    data: Callable[[RunSpec, Path, CheckStop], Any]
    """Opens the data that a spec names in the folder of prepared datasets, or prepares them there: a `TaskData`."""
    model: Callable[[RunSpec, Any, InitialWeights | None], nn.Module]
    """The model for that data with its initial weights, on the CPU; None draws them."""
    task: Callable[[Any, Any, RunSpec, ProcessGroup], Task[Any]]
    """Model, on its device already, and data → task, of which this rank has its share."""


def _text(spec: RunSpec, dataset_folder: Path, check_stop: CheckStop) -> TokenDataset:
    data = spec.workload.data
    return ensure_dataset(data.dataset, data.tokenizer, dataset_folder, data.data_hash, check_stop)


def _conversations(spec: RunSpec, dataset_folder: Path, check_stop: CheckStop) -> ConversationDataset:
    data = spec.workload.data
    return ensure_conversations(data.dataset, data.tokenizer, dataset_folder, data.data_hash, check_stop)


def _problem(spec: RunSpec, dataset_folder: Path, check_stop: CheckStop) -> LinearProblem:
    del dataset_folder, check_stop  # nothing is stored
    return linear_problem(spec)


def _language_model(
    spec: RunSpec, data: TokenDataset | ConversationDataset, weights: InitialWeights | None
) -> nn.Module:
    vocabulary_size = data.manifest.vocabulary_size
    return build_model(spec.workload.model, spec.seed, vocabulary_size=vocabulary_size, weights=weights)


def _linear_model(spec: RunSpec, data: LinearProblem, weights: InitialWeights | None) -> nn.Module:
    del spec, weights  # W starts at 0
    return LinearModel(data.dimension)


def _single_process(
    task: Callable[[Any, Any, RunSpec], Task[Any]],
) -> Callable[[Any, Any, RunSpec, ProcessGroup], Task[Any]]:
    """A task that one process alone trains: its specification refuses several."""
    return lambda model, data, spec, group: task(model, data, spec)


TASKS: Final[dict[str, TaskEntry]] = {
    "pretrain": TaskEntry(data=_text, model=_language_model, task=Pretraining),
    "sft": TaskEntry(data=_conversations, model=_language_model, task=FineTuning),
    "rlhf": TaskEntry(data=_conversations, model=_language_model, task=_single_process(ReMax)),
    "regression": TaskEntry(data=_problem, model=_linear_model, task=_single_process(Regression)),
}
"""By `kind`."""
