"""Coordinate descent of tuning: which settings are tried, from those that ended; the same after a restart."""

import math
import random
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from operator import itemgetter
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from orchestrator.kinds.comparison import ComparisonSpec
from orchestrator.kinds.tuning import Tuning, TuningGroup, TuningRun
from orchestrator.tuning.coordinate import lowest_setting, rate_of
from orchestrator.tuning.ranges import Setting
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


def test_each_trial_changes_one_axis_of_an_earlier_one_and_the_last_is_the_lowest_point_of_parabolas() -> None:
    of = spec(15, "lr", "beta2")
    tried, runs, batches = follow(of, bowl)
    assert batches[:4] == [1, 2, 2, 2] and set(batches) == {1, 2}, "both sides of an axis, but for what is known"
    assert sum(batches) - 1 == 15
    assert len(runs) == of.run_count() == 15 * 2 + 2
    trials, judged = tried[:-1], tried[-1]
    assert trials[0] == {"lr": 1e-3, "beta2": 0.95}
    assert len({each["lr"] for each in trials}) == 15, "a rate names its trial"
    for place, each in enumerate(trials[1:-1], start=1):
        changed = [
            {name for name in each if not math.isclose(each[name], old[name], rel_tol=2e-6)} for old in trials[:place]
        ]
        assert any(len(names) == 1 for names in changed)
    walked = min(trials[:-1], key=bowl)
    assert abs(math.log(walked["lr"] / 4e-3)) < math.log(8) / 8, "within an eighth of half the range"
    assert judged == trials[-1] == {"lr": pytest.approx(4e-3, rel=1e-3), "beta2": pytest.approx(0.975, abs=1e-5)}
    assert bowl(judged) < bowl(walked)


@pytest.mark.parametrize("middle", [1e-3, 8e-3])
@pytest.mark.parametrize("factor", [8.0, 1 / 8])
def test_a_rate_at_the_end_of_its_range_is_tried(middle: float, factor: float) -> None:
    """Though rounding, and the name of a rate, take its place a little to either side."""
    end = middle * factor
    tried, _, _ = follow(spec(6, "lr", lr=middle), lambda setting: math.log(setting["lr"] / end) ** 2)
    assert tried[-1]["lr"] == pytest.approx(end, rel=5e-4)


@pytest.mark.parametrize("lr", [1e-3, 1.7e-3, 6.04e-4, 3.3e-4])
@pytest.mark.parametrize("axes", [("lr",), ("lr", "beta2"), ("lr", "weight_decay", "clip")])
def test_no_setting_is_tried_twice_in_another_digit(axes: tuple[str, ...], lr: float) -> None:
    """A rate that goes up by a step and down again comes back rounded."""
    tried, _, _ = follow(spec(24, *axes, lr=lr), lambda each: bowl(each) if "beta2" in each else 2 + each["lr"])
    amounts = [[1 - value if name == "beta2" else value for name, value in each.items()] for each in tried[:-1]]
    assert not [pair for pair in combinations(amounts, 2) if np.allclose(*pair, rtol=2e-3, atol=0)]


def test_where_no_axis_has_a_lower_point_the_walk_takes_the_last_trial() -> None:
    tried, _, _ = follow(spec(9, "lr"), lambda setting: 2 + setting["lr"])
    assert len(tried) == 9 + 1 and len({each["lr"] for each in tried}) == 9
    assert tried[-1] == min(tried[:-1], key=itemgetter("lr")), "the end of the rate's range"


LINE = spec(9, "lr", lr=1e-3).priors("adamw")
WIDTH = math.log(8)


def line(*losses: tuple[float, float | None]) -> tuple[list[Setting], dict[float, tuple[float, float]]]:
    """Trials of the rate at places from -1 to 1, and how they stand: None for one that diverged."""
    rates = [1e-3 * math.exp(WIDTH * place) for place, _ in losses]
    ranks = {
        rate: (2.0, math.inf) if loss is None else (0.0, loss) for rate, (_, loss) in zip(rates, losses, strict=True)
    }
    return [{"lr": rate} for rate in rates], ranks


def test_the_lowest_point_of_a_parabola_is_found_between_unequal_neighbours() -> None:
    found = lowest_setting(LINE, *line((0.0, 2.01), (-0.5, 2.36), (1.0, 2.81)))  # 1 at 0.1: 2 + (x - 0.1)^2
    assert found is not None and math.log(rate_of(found) / 1e-3) / WIDTH == pytest.approx(0.1, abs=1e-3)


def test_beside_a_trial_that_was_lost_an_axis_stays_where_it_is() -> None:
    """Though there are trials beyond it: the lowest point between would lie where runs diverge."""
    assert lowest_setting(LINE, *line((0.0, 2.0), (-0.5, 2.3), (0.5, 2.004), (0.25, None))) is None
    assert lowest_setting(LINE, *line((0.0, 2.0), (-0.5, 2.3), (0.5, 2.004))) is not None


def test_an_axis_that_was_tried_before_others_moved_is_lowest_where_it_was_then() -> None:
    """The best trial's rate has no neighbours at its beta2; at the one before, three rates have a lowest point."""
    settings = [(1e-3, 0.95), (4e-3 / 2**0.5, 0.95), (8e-3, 0.95), (4e-3 / 2**0.5, 0.9), (4e-3 / 2**0.5, 0.98)]
    tried: list[Setting] = [{"lr": lr * (1 + 1e-7 * i), "beta2": beta2} for i, (lr, beta2) in enumerate(settings)]
    found = lowest_setting(
        spec(9, "lr", "beta2").priors("adamw"), tried, {rate_of(each): (0.0, bowl(dict(each))) for each in tried}
    )
    assert found == {"lr": pytest.approx(4e-3, rel=1e-3), "beta2": 0.98}


def test_an_axis_that_ended_at_one_side_stays_there_though_it_had_a_lowest_point_before() -> None:
    """Three rates are lowest in the middle; after beta2 moved, the higher of two was the better one, and is kept."""
    losses = {
        (5e-4, 0.95): 2.5,
        (1e-3, 0.95): 2.4,
        (2e-3, 0.95): 2.6,
        (2e-3, 0.97): 2.2,
        (4e-3, 0.97): 2.0,
        (4e-3, 0.98): 1.9,
    }
    tried: list[Setting] = [{"lr": lr * (1 + 1e-7 * i), "beta2": beta2} for i, (lr, beta2) in enumerate(losses)]
    ranks = {rate_of(each): (0.0, loss) for each, loss in zip(tried, losses.values(), strict=True)}
    assert lowest_setting(spec(9, "lr", "beta2").priors("adamw"), tried, ranks) is None


def test_a_trial_off_the_scale_is_no_neighbour() -> None:
    """No clipping lies at the end of the range, where the largest bound is another thing."""
    of = spec(9, "lr", "clip")
    of = of.model_copy(update={"workload": of.workload.model_copy(update={"clip_grad_norm": None})})
    bounds = {None: 2.0005, 4.0: 2.5, 2.0: 2.0, 1.0: 2.1}
    for order in (list(bounds), list(bounds)[::-1]):
        tried: list[Setting] = [{"lr": 1e-3 * (1 + 1e-7 * i), "clip_grad_norm": each} for i, each in enumerate(order)]
        ranks = {rate_of(each): (0.0, bounds[bound]) for each, bound in zip(tried, order, strict=True)}
        found = lowest_setting(of.priors("adamw"), tried, ranks)
        assert found is not None and found["clip_grad_norm"] == pytest.approx(4 ** (1 / 3), rel=1e-3)


def test_a_lowest_point_that_rounds_to_a_trial_is_not_tried_again() -> None:
    """Steps of warm-up are whole."""
    of = comparison_spec(
        optimizers=("adamw",), learning_rates=(1e-3,), steps=20,
        tuning=Tuning(seeds=(7,), search=("lr", "warmup"), method="coordinate", trials=9),
    )  # fmt: skip
    steps = {2: 2.0, 1: 2.05, 3: 3.0}
    tried: list[Setting] = [{"lr": 1e-3 * (1 + 1e-7 * each), "warmup_steps": each} for each in steps]
    ranks = {rate_of(each): (0.0, loss) for each, loss in zip(tried, steps.values(), strict=True)}
    assert lowest_setting(of.priors("adamw"), tried, ranks) is None


@pytest.mark.parametrize("axes", [("lr", "beta2"), ("lr", "beta2", "beta1", "weight_decay")])
def test_where_axes_do_the_same_to_the_loss_the_best_trial_is_judged(axes: tuple[str, ...]) -> None:
    """All of them together go too far: the last trial is worse, and no harm is done."""

    def valley(setting: dict[str, Any]) -> float:
        x = [math.log(setting["lr"] / 1.7e-3), math.log((1 - setting["beta2"]) / 0.037)]
        if len(axes) > 2:
            x += [math.log((1 - setting["beta1"]) / 0.17), math.log(setting["weight_decay"] / 0.2)]
        return 2 + 0.1 * (0.95 * sum(x) ** 2 + 0.05 * sum(each * each for each in x))

    for trials in range(4 + 2 * len(axes), 20):
        tried, _, _ = follow(spec(trials, *axes), valley)
        assert tried[-1] == min(tried[:-1], key=valley)


def test_trials_of_an_older_path_count_as_well() -> None:
    """A service of another release began it: its trials are not on this path, and no candidate is tried more often."""
    of = spec(8, "lr", "beta2")
    _, runs, _ = follow(of, bowl)
    others = [replace(run, lr=run.lr * (1 + 1e-9)) for run in runs if run.seed in (7, 8)][2:]
    pending = of.follow_up_runs(GROUP, [*runs[:2], *others])
    assert len({run.lr for run in others}) == 7 and {run.spec.seed for run in pending}.isdisjoint({7, 8})
    assert {run.spec.optimizer.lr for run in pending} == {runs[0].lr}, "the best one whose setting is known"


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
        tuning=Tuning(seeds=(7,), search=("lr", "warmup", "clip"), method="coordinate", trials=10),
    )  # fmt: skip
    tried, _, _ = follow(of, lambda each: 2 + each["lr"])
    assert {each["warmup_steps"] for each in tried} == {0, 1}, "no range: a step, and none"
    assert len({each["clip_grad_norm"] for each in tried}) >= 3


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"trials": 7}, "must be at least 8 with method coordinate"),
        ({"trials": 9, "method": "descent"}, "coordinate"),
    ],
)
def test_what_cannot_be_walked_is_refused(fields: dict[str, object], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        Tuning.model_validate({"search": ["lr", "beta2"], "method": "coordinate"} | fields)
