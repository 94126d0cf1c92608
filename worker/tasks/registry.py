"""Every kind of task with its data, its model and its losses: how `run.py` gets from a spec to what is trained."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from torch import nn

from worker.data.conversations import ConversationDataset, ensure_conversations
from worker.data.preparation import ensure_dataset
from worker.data.shards import TokenDataset
from worker.data.weights import InitialWeights
from worker.distributed.process_group import ProcessGroup
from worker.models import build_model
from worker.spec.run import RunSpec
from worker.tasks.next_token import FineTuning, Pretraining
from worker.tasks.regression import LinearModel, LinearProblem, Regression
from worker.tasks.remax import ReMax
from worker.tasks.task import Task

CheckStop = Callable[[], None]
"""Called while something is prepared or waited for; raises where the run is to end."""


TaskData = TokenDataset | ConversationDataset | LinearProblem
"""The data of a task, open and checked."""


@dataclass(frozen=True, kw_only=True)
class TaskEntry:
    """A kind of task."""

    data: Callable[[RunSpec, Path, CheckStop], TaskData]
    """Opens the data that a spec names in the folder of prepared datasets, or prepares them there."""
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


def _language_model(
    spec: RunSpec, data: TokenDataset | ConversationDataset, weights: InitialWeights | None
) -> nn.Module:
    vocabulary_size = data.manifest.vocabulary_size
    return build_model(spec.workload.model, spec.seed, vocabulary_size=vocabulary_size, weights=weights)


TASKS: Final[dict[str, TaskEntry]] = {
    "pretrain": TaskEntry(data=_text, model=_language_model, task=Pretraining),
    "sft": TaskEntry(data=_conversations, model=_language_model, task=FineTuning),
    # One process alone trains the others: their specifications refuse several.
    "rlhf": TaskEntry(
        data=_conversations,
        model=_language_model,
        task=lambda model, data, spec, group: ReMax(model, data, spec),
    ),
    "regression": TaskEntry(
        data=lambda spec, dataset_folder, check_stop: LinearProblem(spec.workload.task),  # nothing is stored
        model=lambda spec, data, weights: LinearModel(data.dimension),  # W starts at 0
        task=lambda model, data, spec, group: Regression(model, data, spec),
    ),
}
"""The tasks by `kind`."""
