"""All that is wrong with a specification is told at once, and nothing that is only wrong with a replacement."""

from typing import Any

import pytest
from pydantic import ValidationError

from orchestrator.kinds.comparison import ComparisonSpec
from orchestrator.kinds.scaling import ScalingSpec
from orchestrator.kinds.sweep import SweepSpec
from orchestrator.specs.faults import validation_faults
from orchestrator.specs.hidden_faults import with_hidden_faults
from worker.spec.run import RunSpec

SOUND: dict[str, Any] = {
    "name": "small",
    "workload": {"model": "gpt2-tiny", "budget": {"steps": 10}},
    "candidates": [
        {"optimizer": "adamw", "learning_rates": [0.1]},
        {"optimizer": "adapm", "learning_rates": [0.1]},
    ],
    "seeds": [1],
}


def places(fields: dict[str, Any], model: type = ComparisonSpec) -> set[str]:
    with pytest.raises(ValidationError) as refused:
        model.model_validate(fields)  # type: ignore[attr-defined]
    found = validation_faults(refused.value, model)
    return {fault.pointer for fault in with_hidden_faults(found, fields)}


def test_a_wrong_rate_hides_no_option_no_baseline_and_no_dataset():
    candidates = [
        {"optimizer": "adamm", "learning_rates": 0.1},
        {"optimizer": "adapm", "learning_rates": [0], "options": {"rank": 1, "eps": []}},
    ]
    workload = SOUND["workload"] | {"data": {"dataset": "chats"}, "schedule": {"warmup_steps": 10}}
    assert places(SOUND | {"workload": workload, "candidates": candidates, "baseline": "lion"}) == {
        "/candidates/0/optimizer",
        "/candidates/0/learning_rates",
        "/candidates/1/learning_rates/0",
        "/candidates/1/options/rank",
        "/candidates/1/options/eps",
        "/workload/data/dataset",
        "/workload/schedule/warmup_steps",
        "/baseline",
    }


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"workload": {"model": "gpt9", "budget": {"steps": 10}}}, {"/workload/model"}),
        (
            {"workload": {"model": "gpt9", "data": {"sequence_length_tokens": 10**6}, "budget": {"steps": 10}}},
            {"/workload/model"},
        ),
        ({"workload": {"model": "gpt2-tiny", "budget": {"steps": 0}, "schedule": {"warmup_steps": 9}}},
         {"/workload/budget/steps"}),
        ({"workload": {"model": "gpt2-tiny", "task": "sfd", "data": {"dataset": "chats"}, "budget": {"steps": 10}}},
         {"/workload/task"}),
        ({"candidates": [{"optimizer": "adamw"}, SOUND["candidates"][1]]}, {"/candidates/0/learning_rates"}),
        ({"candidates": [{"optimizer": "adamw"}] * 2},
         {"/candidates/0/learning_rates", "/candidates/1/learning_rates", "/candidates/1/label"}),
        ({"candidates": 1, "workload": "x"}, {"/candidates", "/workload"}),
        ({"candidates": [1]}, {"/candidates/0"}),
        ({"candidates": [], "baseline": "adamw"}, {"/candidates"}),
        ({"resources": {"gpus": 2, "processes": 3}, "tuning": {"seeds": [1]}},
         {"/resources/processes", "/tuning/seeds"}),
    ],
)  # fmt: skip
def test_what_follows_from_a_fault_alone_is_not_told(changes: dict[str, Any], expected: set[str]):
    assert places(SOUND | changes) == expected


MODEL_AND_TRAINING: dict[str, Any] = {"model": "gpt2-tiny", "budget": {"steps": 100}}
TOO_LONG: dict[str, Any] = {
    "data": {"dataset": "python-stdlib", "sequence_length_tokens": 5000},
    "schedule": {"warmup_steps": 9999},
}


@pytest.mark.parametrize(
    ("changes", "also"),
    [
        ({"workload": MODEL_AND_TRAINING | TOO_LONG | {"model": "gpt2-tinyy"}}, {"/workload/model"}),
        (
            {"workload": MODEL_AND_TRAINING | TOO_LONG | {"data": TOO_LONG["data"] | {"dataset": "python"}}},
            {"/workload/data/dataset"},
        ),
        (
            {"workload": MODEL_AND_TRAINING | TOO_LONG | {"budget": {"steps": 100, "batch_sequences": 0}}},
            {"/workload/budget/batch_sequences"},
        ),
        (
            {"workload": MODEL_AND_TRAINING | TOO_LONG, "seeds": [1, 1], "resources": {"gpus": 3}},
            {"/seeds", "/workload/budget/batch_sequences"},
        ),
        (
            {"workload": MODEL_AND_TRAINING | TOO_LONG, "tuning": {"seeds": [1]}, "baseline": "lion"},
            {"/tuning/seeds", "/baseline"},
        ),
    ],
)
def test_a_sequence_and_a_warm_up_that_are_too_long_are_told_whatever_else_is_wrong(
    changes: dict[str, Any], also: set[str]
):
    assert places(SOUND | changes) == {
        "/workload/data/sequence_length_tokens",
        "/workload/schedule/warmup_steps",
        *also,
    }


def test_faults_of_sweeps_and_of_scaling_experiments_are_told_at_once():
    workload = MODEL_AND_TRAINING | TOO_LONG
    searched = {"optimizer": "adamw", "options": {"rank": 1}, "space": {"lr": {"kind": "log-uniform", "low": 2}}}
    sweep = {"kind": "sweep", "name": "", "workload": workload, "candidates": [searched]}
    assert places(sweep | {"early_stopping": {"grace_steps": 200}}, SweepSpec) == {
        "/name",
        "/candidates/0/space/lr/high",
        "/candidates/0/options/rank",
        "/workload/data/sequence_length_tokens",
        "/workload/schedule/warmup_steps",
        "/early_stopping/grace_steps",
    }
    scaling = {
        "kind": "scaling",
        "name": "sizes",
        "workload": TOO_LONG,
        "candidates": [{"optimizer": "adamm", "learning_rates": [0.1], "options": {"rank": 1}}],
        "sizes": [{"model": "gpt2-tinyy"}, {"model": "gpt2-nano", "micro_batch_sequences": 9}],
        "budgets": [{"tokens": 1_024_000}],
        "seeds": [1],
    }
    assert places(scaling, ScalingSpec) == {
        "/sizes/0/model",
        "/sizes/1",
        "/candidates/0/optimizer",
        "/candidates/0/options/rank",
        "/workload/data/sequence_length_tokens",
        "/workload/schedule/warmup_steps",
    }


def test_a_run_has_an_optimizer_instead_of_candidates():
    run = {"workload": SOUND["workload"], "optimizer": {"name": "adapm", "lr": 0, "options": {"rank": 1}}, "seed": 1}
    assert places(run, RunSpec) == {"/optimizer/lr", "/optimizer/options/rank"}


def test_what_is_no_specification_is_left_alone():
    with pytest.raises(ValidationError) as refused:
        RunSpec.model_validate({"label": ""})
    found = validation_faults(refused.value, RunSpec)
    others: tuple[Any, ...] = ({"label": ""}, [], None, {"kind": "poem", "workload": {}})
    for fields in others:
        assert with_hidden_faults(found, fields) == found
    assert with_hidden_faults((), SOUND) == ()
