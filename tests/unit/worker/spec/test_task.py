"""Allowed and refused fields of a workload's task."""

from typing import Any

import pytest

from tests.unit.worker.spec.test_run import faults
from worker.spec.run import RunSpec


def spec(**workload: Any) -> dict[str, Any]:
    fields = {"budget": {"steps": 10}, **workload}
    return {"workload": fields, "optimizer": {"name": "adamw", "lr": 1e-3}, "seed": 1}


def test_a_name_is_short_for_a_task_with_its_defaults() -> None:
    """Written out or not, hashed alike; without a task it is pretraining."""
    for kind in ("pretrain", "sft", "rlhf"):
        short, long = (RunSpec.model_validate(spec(task=task, model="gpt2-tiny")) for task in (kind, {"kind": kind}))
        assert short == long
        assert short.content_hash() == long.content_hash()
        assert short.workload.task.kind == kind
        assert RunSpec.model_validate_json(short.model_dump_json()) == short
    assert RunSpec.model_validate(spec(model="gpt2-tiny")).workload.task.kind == "pretrain"


def test_a_task_brings_defaults_that_a_user_may_override() -> None:
    """A regression needs nothing but a budget; what is said wins, also inside nested fields."""
    workload = RunSpec.model_validate(spec(task="regression")).workload
    assert (workload.model, workload.data.dataset, workload.data.sequence_length_tokens) == ("linear", "drawn", 1)
    assert (workload.budget.batch_sequences, workload.clip_grad_norm, workload.schedule.shape) == (1, None, "phases")
    assert workload.tokens() == 10
    fields = spec(task="regression", clip_grad_norm=2.0, schedule={"shape": "cosine", "final_lr_ratio": 0.5})
    changed = RunSpec.model_validate(fields).workload
    assert (changed.clip_grad_norm, changed.schedule.shape, changed.schedule.final_lr_ratio) == (2.0, "cosine", 0.5)
    assert RunSpec.model_validate(spec(task="sft", model="gpt2-tiny")).workload.data.dataset == "chats"


@pytest.mark.parametrize(
    ("workload", "place", "said"),
    [
        ({"task": {"kind": "regression", "a": 0.5}}, "task.regression.a", "greater than or equal to 1"),
        ({"task": "sft", "model": "linear"}, "model", "is not a language model, which the task sft trains: gpt2-tiny"),
        ({"task": "sft", "model": "gpt2-tiny", "data": {"dataset": "python-stdlib"}}, "data.dataset", "holds text"),
        (
            {"model": "gpt2-tiny", "data": {"dataset": "chats"}},
            "data.dataset",
            "holds conversations; the task pretrain",
        ),
        (
            {"task": "sft", "model": "gpt2-tiny", "data": {"tokenizer": "bpe-512"}},
            "data.tokenizer",
            "one of byte, gpt2",
        ),
        (
            {"task": "sft", "model": "gpt2-tiny", "data": {"sequence_length_tokens": 300}},
            "data.sequence_length_tokens",
            "256",
        ),
        ({"task": {"kind": "rlhf", "answer_tokens": 128}, "model": "gpt2-tiny"}, "task.answer_tokens", "must be below"),
        ({"task": "rlhf", "model": "gpt2-tiny", "execution": {"compile": True}}, "execution.compile", "must be false"),
        ({"task": "regression", "model": "gpt2-tiny"}, "model", "must be linear"),
        ({"task": "regression", "data": {"sequence_length_tokens": 2}}, "data.sequence_length_tokens", "must be 1"),
        ({"task": "regression", "precision": "bf16"}, "precision", "must be fp32"),
        ({"task": "regression", "probes": {}}, "probes", "no weight matrix"),
        ({"task": "regression", "execution": {"compile": True}}, "execution.compile", "must be false"),
        ({"task": "regression", "initial_weights": "own/mine"}, "initial_weights", "must be null"),
        ({"model": "gpt2-tiny", "probes": {"kinds": []}}, "probes.kinds", "at least 1"),
    ],
)
def test_every_misfit_is_named_at_its_place(workload: dict[str, Any], place: str, said: str) -> None:
    """One wrong thing, one fault."""
    message_by_path = faults(spec(**workload))

    assert list(message_by_path) == [f"workload.{place}"]
    assert said in message_by_path[f"workload.{place}"]


def test_all_misfits_are_said_at_once() -> None:
    raw = spec(task="regression", model="gpt2-tiny", data={"dataset": "chats", "sequence_length_tokens": 4}, probes={})
    assert set(faults(raw)) == {
        "workload.model",
        "workload.data.dataset",
        "workload.data.sequence_length_tokens",
        "workload.probes",
    }
