"""Optimizers of each kind through the whole worker: they train, and a stopped run goes on to the same bit."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from optim.catalog import entry
from optim.catalog.records import Need
from tests.factories.reporters import MemoryReporter, StoppingReporter, losses
from tests.factories.specification import made_spec
from worker.errors import RunStoppedError
from worker.records.result import Verdict
from worker.run import CHECKPOINT_FOLDER, Folders, run
from worker.tasks.next_token import Pretraining, TokenMicroBatch
from worker.tasks.registry import TASKS
from worker.training.checkpoint import CheckpointStore

STEPS = 20
STOP = 11
"""Neither an evaluated step nor one at which a subspace or eigenbasis is renewed."""


def tensors(value: object) -> Iterator[torch.Tensor]:
    """Every tensor in nested state; of a quantised one, those inside."""
    if is_traceable_wrapper_subclass(value):
        yield from (getattr(value, name) for name in value.__tensor_flatten__()[0])
    elif isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict | list | tuple):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from tensors(inner)


KINDS = ("adamw-8bit", "schedule-free-adamw")
"""Quantised tensors, two sets of weights: the odd kinds of state that a checkpoint has to keep.
`tests/contract/optim/test_optimizers.py` resumes the whole catalog, `test_resume.py` kills AdaPM, and
`tests/unit/worker/test_run.py` stops AdamW."""


@pytest.mark.parametrize("name", KINDS)
def test_it_converges_resumes_bit_for_bit_and_counts_its_state(name: str, dataset_folder: Path, tmp_path: Path) -> None:
    """At the catalog's own learning rate; state bytes are summed anew from the checkpoint."""
    spec = made_spec(optimizer=name, steps=STEPS, lr=entry(name).learning_rate, model="gpt2-nano")
    whole, stopped, resumed = MemoryReporter(), StoppingReporter(STOP), MemoryReporter()
    expected = run(spec, whole, Folders(run_folder=tmp_path / "whole", dataset_folder=dataset_folder))

    folders = Folders(run_folder=tmp_path / "stopped", dataset_folder=dataset_folder)
    with pytest.raises(RunStoppedError):
        run(spec, stopped, folders)
    state = CheckpointStore(folders.run_folder / CHECKPOINT_FOLDER, spec.training_hash()).newest()
    result = run(spec, resumed, folders)

    assert expected.verdict is result.verdict is Verdict.CONVERGED
    assert result.resumed_from_step == STOP
    assert losses([*stopped.points, *resumed.points]) == losses(whole.points)
    assert (result.final_val_loss, result.final_train_loss) == (expected.final_val_loss, expected.final_train_loss)
    assert state is not None
    held = sum(tensor.numel() * tensor.element_size() for tensor in tensors(state["optimizer"]["state"]))
    assert result.optimizer_state_bytes == expected.optimizer_state_bytes == held


class WatchedPretraining(Pretraining):
    """Keeps the weights that it was evaluated with, and those that the next step was taken with."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.evaluated: list[torch.Tensor] = []
        self.trained: list[torch.Tensor] = []
        WATCHED.append(self)

    def _weights(self) -> torch.Tensor:
        return torch.cat([value.detach().flatten() for value in self.model.parameters()])

    def validation_loss(self, micro_batch_sequences: int) -> float:
        self.evaluated.append(self._weights())
        return super().validation_loss(micro_batch_sequences)

    def training_loss(self, micro_batch: TokenMicroBatch) -> torch.Tensor:
        if len(self.trained) < len(self.evaluated):
            self.trained.append(self._weights())
        return super().training_loss(micro_batch)


WATCHED: list[WatchedPretraining] = []


@pytest.mark.parametrize("name", ["adamw", "schedule-free-adamw"])
def test_the_loop_evaluates_the_result_and_goes_on_with_the_weights_to_train(
    name: str, dataset_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which differ for those that the catalog says it of, and for no other."""
    monkeypatch.setitem(TASKS, "pretrain", replace(TASKS["pretrain"], task=WatchedPretraining))
    spec = made_spec(optimizer=name, steps=12, lr=entry(name).learning_rate, model="gpt2-nano")
    run(spec, MemoryReporter(), Folders(run_folder=tmp_path, dataset_folder=dataset_folder))
    task = WATCHED[-1]
    assert (len(task.evaluated), len(task.trained)) == (4, 3)  # steps 0, 5, 10 and the end
    assert torch.equal(task.evaluated[0], task.trained[0])
    for evaluated, trained in zip(task.evaluated[1:3], task.trained[1:], strict=True):
        assert torch.equal(evaluated, trained) is (Need.MODES not in entry(name).needs)
