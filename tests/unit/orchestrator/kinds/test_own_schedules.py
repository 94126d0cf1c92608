"""Own settings of a candidate: schedule, warm-up, averaged weights."""

from typing import Any

import pytest
from pydantic import ValidationError

from orchestrator.kinds.comparison import ComparisonSpec
from orchestrator.kinds.sweep import SweepSpec
from orchestrator.sweeps.trials import trial_run
from worker.schema import trust_stored_names
from worker.spec.run import RunSpec, Schedule

WORKLOAD = {
    "model": "gpt2-tiny",
    "budget": {"steps": 20},
    "schedule": {"shape": "wsd", "warmup_steps": 3, "decay_share": 0.5},
}


def comparison(*candidates: dict[str, Any], **workload: Any) -> ComparisonSpec:
    fields = [
        {"learning_rates": [1e-3], "optimizer": "adamw", "label": f"c{index}"} | candidate
        for index, candidate in enumerate(candidates)
    ]
    return ComparisonSpec.model_validate(
        {"name": "own schedules", "workload": WORKLOAD | workload, "candidates": fields, "seeds": [1]}
    )


def trained(spec: ComparisonSpec) -> list[RunSpec]:
    """Return the runs as a worker reads them."""
    return [RunSpec.model_validate_json(run.spec.model_dump_json()) for run in spec.first_runs()]


def test_what_is_left_out_is_the_workloads() -> None:
    """Shape, end and share of the decay, warm-up and average, each by itself."""
    spec = comparison(
        {},
        {"schedule": {"shape": "linear", "final_lr_ratio": 0.0}},
        {"schedule": {"decay_share": 0.25}},
        {"schedule": {"shape": "constant"}, "warmup_steps": 5, "ema_decay": 0.9},
    )
    assert [(run.workload.schedule, run.workload.ema_decay) for run in trained(spec)] == [
        (Schedule(shape="wsd", warmup_steps=3, decay_share=0.5), None),
        (Schedule(shape="linear", warmup_steps=3, final_lr_ratio=0.0), None),
        (Schedule(shape="wsd", warmup_steps=3, decay_share=0.25), None),
        (Schedule(shape="constant", warmup_steps=5), 0.9),
    ]
    schedule_words = (
        "c1: linear, to 0 of the rate; c2: over the last 25% of the steps; "
        "c3: constant, warm-up of 5 steps, weights averaged (0.9)"
    )
    assert spec.facts() == (("baseline", "c0"), ("of their own", schedule_words))
    assert spec.tuning_method().endswith(f"Instead of the workload's: {schedule_words}.")


def test_schedule_free_adamw_has_a_constant_rate_where_nothing_is_said() -> None:
    """It is written out, so that the stored specification says it; an older one means what it meant."""
    free = {"optimizer": "schedule-free-adamw"}
    spec = comparison(free, free | {"schedule": {"shape": "cosine"}}, free | {"schedule": None})
    assert [run.workload.schedule.shape for run in trained(spec)] == ["constant", "cosine", "constant"]
    assert ComparisonSpec.model_validate(spec.model_dump(mode="json")) == spec

    fields = spec.model_dump(mode="json")
    for candidate in fields["candidates"]:
        candidate.pop("schedule")
    with trust_stored_names():
        older = ComparisonSpec.model_validate(fields)
    assert [run.spec.workload.schedule.shape for run in older.first_runs()] == ["wsd"] * 3


def test_a_sweeps_trials_have_what_is_the_candidates_own() -> None:
    """Schedule-free AdamW's constant rate, too; of an older sweep, what its workload says."""
    fields = {
        "kind": "sweep", "name": "own", "workload": WORKLOAD, "seed": 1, "trials": 2,
        "candidates": [
            {"optimizer": "schedule-free-adamw"},
            {"optimizer": "adamw", "schedule": {"shape": "linear"}},
        ],
    }  # fmt: skip

    def shapes(spec: SweepSpec) -> list[str]:
        return [trial_run(spec, number, {"lr": 1e-3}).spec.workload.schedule.shape for number in (0, 1)]

    spec = SweepSpec.model_validate(fields)
    assert shapes(spec) == ["constant", "linear"]
    stored = spec.model_dump(mode="json")
    stored["candidates"][0].pop("schedule")
    with trust_stored_names():
        older = SweepSpec.model_validate(stored)
    assert shapes(older) == ["wsd", "linear"]


@pytest.mark.parametrize(
    ("candidate", "workload", "place", "words"),
    [
        ({"schedule": {"shape": "linear", "decay_share": 0.5}}, {}, ("schedule", "decay_share"), "says when `wsd`"),
        ({"schedule": {"shape": "steps"}}, {}, ("schedule", "shape"), "'cosine', 'linear', 'wsd'"),
        ({"schedule": {"warmup_steps": 3}}, {}, ("schedule", "warmup_steps"), "not permitted"),
        ({"ema_decay": 1.0}, {}, ("ema_decay",), "less than 1"),
        ({"optimizer": "schedule-free-adamw", "ema_decay": 0.9}, {}, ("ema_decay",), "averages its weights by itself"),
        ({"optimizer": "schedule-free-adamw"}, {"ema_decay": 0.9}, ("workload", "ema_decay"), "averages its weights"),
    ],
)
def test_what_does_nothing_or_too_much_is_refused(
    candidate: dict[str, Any], workload: dict[str, Any], place: tuple[str, ...], words: str
) -> None:
    with pytest.raises(ValidationError, match=words) as raised:
        comparison({}, candidate, **workload)
    assert [error["loc"][-len(place) :] for error in raised.value.errors()] == [place]
