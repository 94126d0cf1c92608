"""Every kind of task through the whole worker: it is carried out, and a stopped run goes on to the same bit."""

from pathlib import Path
from typing import Any

import pytest

from tests.factories.reporters import MemoryReporter, StoppingReporter
from worker.errors import RunStoppedError
from worker.records.result import Point
from worker.run import Folders, run
from worker.spec.run import RunSpec
from worker.spec.task import KINDS
from worker.tasks.registry import TASKS

WORKLOADS: dict[str, dict[str, Any]] = {
    "sft": {"task": "sft", "model": "llama-tiny", "data": {"sequence_length_tokens": 32}},
    "rlhf": {
        "task": {"kind": "rlhf", "answer_tokens": 4, "reward": "model"},
        "model": "gpt2-tiny",
        "data": {"sequence_length_tokens": 16},
    },
    "regression": {"task": {"kind": "regression", "dimension": 30}},
}
STOP = 5
"""A step that no evaluation follows."""
OPTIMIZERS = {"sft": "adapm", "rlhf": "adapm-mini", "regression": "asgd"}


def spec_of(kind: str, micro_batch_sequences: int | None = None) -> RunSpec:
    workload = {
        "budget": {"steps": 8, "batch_sequences": 4},
        "evaluation": {"every_steps": 3, "sequences": 4},
        "execution": {"micro_batch_sequences": micro_batch_sequences},
        **WORKLOADS[kind],
    }
    optimizer = {"name": OPTIMIZERS[kind], "lr": 1e-3 if kind != "regression" else 0.1}
    return RunSpec.model_validate({"workload": workload, "optimizer": optimizer, "seed": 3})


def seen(points: list[Point]) -> list[tuple[float | None, ...]]:
    """Return the fields that do not depend on the clock."""
    return [
        (p.step, p.tokens, p.train_loss, p.val_loss, p.grad_norm, p.lr, p.reward, p.kl_nats, p.answer_tokens)
        for p in points
    ]


def test_every_kind_that_a_spec_may_name_is_registered() -> None:
    assert list(TASKS) == list(KINDS)


@pytest.mark.parametrize("kind", WORKLOADS)
def test_a_stopped_run_goes_on_to_the_same_bit(kind: str, tmp_path: Path) -> None:
    """Losses, rewards, divergences and lengths of answers."""
    datasets = tmp_path / "datasets"
    whole, first, second = MemoryReporter(), StoppingReporter(STOP), MemoryReporter()
    expected = run(spec_of(kind), whole, Folders(run_folder=tmp_path / "whole", dataset_folder=datasets))
    folders = Folders(run_folder=tmp_path / "stopped", dataset_folder=datasets)
    with pytest.raises(RunStoppedError):
        run(spec_of(kind), first, folders)
    result = run(spec_of(kind), second, folders)

    assert result.resumed_from_step == STOP
    assert seen([*first.points, *second.points]) == seen(whole.points)
    assert (result.verdict, result.final_val_loss, result.data_hash) == (
        expected.verdict,
        expected.final_val_loss,
        expected.data_hash,
    )
    flops = (expected.flops_per_token, expected.flops_per_second)
    assert [figure is not None for figure in flops] == [kind == "sft"] * 2, "a step of rlhf is more than its passes"
    later_points = whole.points[1:]
    assert all((point.reward is not None) is (kind == "rlhf") for point in later_points)
    assert [point.step for point in whole.points if point.val_loss is not None] == [0, 3, 6, 8]
