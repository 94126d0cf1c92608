"""Coordinate descent of tuning: which settings are tried, from those that ended; the same after a restart."""

import math
import random
from collections.abc import Callable
from itertools import combinations
from operator import itemgetter
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from orchestrator.kinds.comparison import ComparisonSpec
from orchestrator.kinds.tuning import Tuning, TuningGroup, TuningRun
from tests.factories.stores import comparison_spec
from worker.records.result import Verdict

GROUP = TuningGroup(candidate="adamw", model="gpt2-tiny", steps=1000)
Loss = Callable[[dict[str, Any]], float | None]


def spec(trials: int, *axes: str, seeds: tuple[int, ...] = (7, 8), lr: float = 1e-3) -> ComparisonSpec:
    tuning = {"seeds": seeds, "search": axes, "method": "coordinate", "trials": trials}
    return comparison_spec(
        optimizers=("adamw",), learning_rates=(lr,), steps=1000, tuning=Tuning.model_validate(tuning)
    )


def follow(of: ComparisonSpec, loss: Loss) -> tuple[list[dict[str, Any]], list[TuningRun], list[int]]:
    """What is tried until the judged seeds are asked for, the runs of all, and how many trials each batch has."""
    runs: list[TuningRun] = []
    settings: list[dict[str, Any]] = []
    batches: list[int] = []
    pending = of.first_runs()
    while pending:
        found = {run.spec.optimizer.lr: of.searched_parameters(0, run.spec) for run in pending}
        batches.append(len(found))
        settings += found.values()
        for run in pending:
            value = loss(found[run.spec.optimizer.lr])
            verdict = Verdict.DIVERGED if value is None else Verdict.CONVERGED
            each = TuningRun(lr=run.spec.optimizer.lr, seed=run.spec.seed, ended=True, verdict=verdict, loss=value)
            runs.append(each)
        shuffled = random.Random(0).sample(runs, len(runs))
        pending = of.follow_up_runs(GROUP, shuffled)
    return settings, runs, batches


def bowl(setting: dict[str, Any]) -> float:
    """Lowest at a rate of 4e-3 and a beta2 of 0.975."""
    return 2 + 0.1 * math.log(setting["lr"] / 4e-3) ** 2 + 0.1 * math.log((1 - setting["beta2"]) / 0.025) ** 2


def test_each_trial_changes_one_axis_of_an_earlier_one_and_the_lowest_point_of_parabolas_is_judged() -> None:
    of = spec(15, "lr", "beta2")
    tried, runs, batches = follow(of, bowl)
    assert batches[:4] == [1, 2, 2, 2] and set(batches) == {1, 2}, "both sides of an axis, but for what is known"
    assert sum(batches) - 1 == 15
    assert len(runs) == of.run_count() == 15 * 2 + 2
    trials, judged = tried[:-1], tried[-1]
    assert trials[0] == {"lr": 1e-3, "beta2": 0.95}
    assert len({each["lr"] for each in trials}) == 15, "a rate names its trial"
    for place, each in enumerate(trials[1:], start=1):
        changed = [
            {name for name in each if not math.isclose(each[name], old[name], rel_tol=2e-6)} for old in trials[:place]
        ]
        assert any(len(names) == 1 for names in changed)
    assert abs(math.log(min(trials, key=bowl)["lr"] / 4e-3)) < math.log(8) / 8, "within an eighth of half the range"
    assert judged == {"lr": pytest.approx(4e-3, rel=1e-3), "beta2": pytest.approx(0.975, abs=1e-5)}
    assert bowl(judged) < min(map(bowl, trials)) and judged["lr"] not in {each["lr"] for each in trials}


@pytest.mark.parametrize("middle", [1e-3, 8e-3])
@pytest.mark.parametrize("factor", [8.0, 1 / 8])
def test_a_rate_at_the_end_of_its_range_is_tried(middle: float, factor: float) -> None:
    """Though rounding, and the name of a rate, take its place a little to either side."""
    end = middle * factor
    tried, _, _ = follow(spec(5, "lr", lr=middle), lambda setting: math.log(setting["lr"] / end) ** 2)
    assert tried[-1]["lr"] == pytest.approx(end, rel=5e-4)


@pytest.mark.parametrize("lr", [1e-3, 1.7e-3, 6.04e-4, 3.3e-4])
@pytest.mark.parametrize("axes", [("lr",), ("lr", "beta2"), ("lr", "weight_decay", "clip")])
def test_no_setting_is_tried_twice_in_another_digit(axes: tuple[str, ...], lr: float) -> None:
    """A rate that goes up by a step and down again comes back rounded."""
    tried, _, _ = follow(spec(24, *axes, lr=lr), lambda each: bowl(each) if "beta2" in each else 2 + each["lr"])
    amounts = [[1 - value if name == "beta2" else value for name, value in each.items()] for each in tried[:-1]]
    assert not [pair for pair in combinations(amounts, 2) if np.allclose(*pair, rtol=2e-3, atol=0)]


def test_axes_without_two_neighbours_or_with_one_that_was_lost_stay_at_the_best_trial() -> None:
    at_the_end, _, _ = follow(spec(9, "lr"), lambda setting: 2 + setting["lr"])
    assert at_the_end[-1] == min(at_the_end[:-1], key=itemgetter("lr")), "the end of the rate's range"
    beside_a_cliff, _, _ = follow(spec(7, "lr", "beta2"), lambda each: None if each["lr"] > 1e-3 else bowl(each))
    best = min((each for each in beside_a_cliff[:-1] if each["lr"] <= 1e-3), key=bowl)
    assert beside_a_cliff[-1]["lr"] == pytest.approx(best["lr"], rel=1e-5) and best["lr"] < 1.001e-3


def test_off_the_scale_there_is_no_parabola() -> None:
    """No clipping lies at the end of the range, where the largest bound is another thing."""
    of = spec(9, "lr", "clip")
    of = of.model_copy(update={"workload": of.workload.model_copy(update={"clip_grad_norm": None})})
    tried, _, _ = follow(of, lambda each: 2 + math.log(each["lr"] / 1e-3) ** 2 + 0.1 * bool(each["clip_grad_norm"]))
    assert [each["clip_grad_norm"] for each in (tried[0], tried[-1])] == [None, None]


@pytest.mark.parametrize("together", [0.5, 0.9, -0.9])
def test_where_two_axes_worsen_the_loss_together_the_judged_setting_is_no_worse_than_any_trial(together: float) -> None:
    def valley(setting: dict[str, Any]) -> float:
        x, y = math.log(setting["lr"] / 1.7e-3), math.log((1 - setting["beta2"]) / 0.037)
        return 2 + 0.1 * (x * x + y * y + 2 * together * x * y)

    for trials in (5, 7, 9, 13, 17):
        tried, _, _ = follow(spec(trials, "lr", "beta2"), valley)
        assert valley(tried[-1]) <= min(map(valley, tried[:-1])) + 1e-6


def test_the_path_is_the_same_from_the_same_results_and_waits_for_all_runs() -> None:
    of = spec(9, "lr", "beta2")
    tried, runs, _ = follow(of, bowl)
    assert follow(of, bowl)[0] == tried
    first = runs[: 2 * 3]
    again = of.follow_up_runs(GROUP, first)
    assert [run.spec.optimizer.lr for run in again] == [lr for each in tried[3:5] for lr in [each["lr"]] * 2]
    waiting = [
        *first[:-1],
        TuningRun(lr=first[-1].lr, seed=first[-1].seed, ended=False, verdict=None, loss=None),
    ]
    assert of.follow_up_runs(GROUP, waiting) == ()
    assert of.follow_up_runs(GROUP, runs) == (), "nothing after the judged seeds"


def test_a_setting_of_its_own_that_diverges_is_left_behind() -> None:
    tried, _, _ = follow(spec(9, "lr", "beta2"), lambda each: None if each["lr"] > 6e-4 else 2 - each["lr"])
    assert len(tried) == 10 and tried[-1]["lr"] < 6e-4


def test_where_no_run_gives_a_result_nothing_more_is_tried() -> None:
    of = spec(9, "lr", "beta2")
    failed = [
        TuningRun(lr=run.spec.optimizer.lr, seed=run.spec.seed, ended=True, verdict=None, loss=None)
        for run in of.first_runs()
    ]
    assert of.follow_up_runs(GROUP, failed) == ()


def test_no_warm_up_and_a_narrow_range_are_walked_from() -> None:
    of = comparison_spec(
        optimizers=("adamw",), learning_rates=(1e-3,), steps=4,
        tuning=Tuning(seeds=(7,), search=("lr", "warmup", "clip"), method="coordinate", trials=9),
    )  # fmt: skip
    tried, _, _ = follow(of, lambda each: 2 + each["lr"])
    assert {each["warmup_steps"] for each in tried} == {0, 1}, "no range: a step, and none"
    assert len({each["clip_grad_norm"] for each in tried}) >= 3


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"trials": 4}, "must be at least 5 with method coordinate"),
        ({"trials": 9, "method": "descent"}, "coordinate"),
    ],
)
def test_what_cannot_be_walked_is_refused(fields: dict[str, object], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        Tuning.model_validate({"search": ["lr", "beta2"], "method": "coordinate"} | fields)


def test_looks_are_refused_until_their_error_is_known() -> None:
    fields = spec(9, "lr", "beta2").model_dump(mode="json") | {"seeds": [1, 2, 3, 4, 5], "sequential": {}}
    with pytest.raises(ValidationError, match="use method random, or all seeds"):
        ComparisonSpec.model_validate(fields)
