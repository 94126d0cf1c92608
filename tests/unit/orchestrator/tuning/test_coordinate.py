"""Coordinate descent: which settings are tried, from those that ended; the same after a restart."""

import math
import random
from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.kinds.comparison import ComparisonSpec
from orchestrator.kinds.tuning import Tuning
from orchestrator.tuning.ranges import AXES
from orchestrator.tuning.tuner import Trials, rate_of
from tests.factories.stores import comparison_spec

Loss = Callable[[dict[str, Any]], float]


def spec(trials: int, *axes: str, lr: float = 1e-3, steps: int = 1000) -> ComparisonSpec:
    tuning = {"seeds": [7, 8, 9], "search": axes, "method": "coordinate", "trials": trials, "replicates": 3}
    return comparison_spec(learning_rates=(lr,), seeds=(1, 2, 3), steps=steps, tuning=Tuning.model_validate(tuning))


def follow(comparison: ComparisonSpec, loss: Loss) -> tuple[list[dict[str, Any]], dict[str, Any] | None, list[int]]:
    """Return the tried settings, the judged one, and the number of trials in each batch. Results come in another order
    each time."""
    tuner, tried, path, batches = comparison.tuner("adamw"), dict[float, float](), list[dict[str, Any]](), list[int]()
    while batch := [dict(setting) for setting in tuner.ask(_shuffled(tried))]:
        path += batch
        batches.append(len(batch))
        tried |= {rate_of(setting): loss(setting) for setting in batch}
    judged = tuner.setting(tried)
    return path, None if judged is None else dict(judged), batches


def _shuffled(tried: Trials) -> Trials:
    return dict(random.Random(len(tried)).sample([*tried.items()], len(tried)))


def bowl(setting: dict[str, Any]) -> float:
    """Lowest at a rate of 4e-3 and a beta2 of 0.975."""
    return 2 + 0.1 * math.log(setting["lr"] / 4e-3) ** 2 + 0.1 * math.log((1 - setting["beta2"]) / 0.025) ** 2


def test_each_trial_changes_one_axis_of_an_earlier_one_and_the_best_one_is_judged() -> None:
    tried, judged, batches = follow(spec(15, "lr", "beta2"), bowl)
    assert batches[:4] == [1, 2, 2, 2] and set(batches) == {1, 2}, "both sides of an axis, but for what is known"
    assert tried[0] == {"lr": 1e-3, "beta2": 0.95}
    assert len(tried) == len({setting["lr"] for setting in tried}) == 15, "a rate names its trial"
    for index, setting in enumerate(tried[1:], start=1):
        changed = [
            {name for name in setting if not math.isclose(setting[name], old[name], rel_tol=2e-6)}
            for old in tried[:index]
        ]
        assert any(len(names) == 1 for names in changed)
    assert judged == min(tried, key=bowl)
    assert abs(math.log(judged["lr"] / 4e-3)) < math.log(8) / 4, "within a quarter of half the range"


@settings(max_examples=40)
@given(st.data())
def test_whatever_losses_are_a_rate_names_its_trial_and_the_lowest_is_judged(data: st.DataObject) -> None:
    axes = data.draw(st.lists(st.sampled_from(AXES[1:]), unique=True))
    trials = data.draw(st.integers(2, 24))
    losses: dict[float, float] = {}

    def loss(setting: dict[str, Any]) -> float:
        return losses.setdefault(setting["lr"], data.draw(st.integers(20, 40).map(float) | st.just(math.inf)))

    tried, judged, _ = follow(spec(trials, "lr", *axes), loss)
    assert len({setting["lr"] for setting in tried}) == len(tried) <= trials
    assert (judged is None) == math.isinf(min(losses.values()))
    assert judged is None or losses[judged["lr"]] == min(losses.values())


@pytest.mark.parametrize("middle", [1e-3, 8e-3])
@pytest.mark.parametrize("factor", [8.0, 1 / 8])
def test_a_rate_at_the_end_of_its_range_is_tried(middle: float, factor: float) -> None:
    """Though rounding, and the name of a rate, take its place a little to either side."""
    end = middle * factor
    comparison = spec(6, "lr", lr=middle)
    tried, judged, _ = follow(comparison, lambda setting: math.log(setting["lr"] / end) ** 2)
    assert judged is not None and judged["lr"] == pytest.approx(end, rel=5e-4)
    assert comparison.tuner("adamw").is_at_edge(
        {setting["lr"]: math.log(setting["lr"] / end) ** 2 for setting in tried}
    )


@pytest.mark.parametrize("lr", [1e-3, 1.7e-3, 6.04e-4, 3.3e-4])
@pytest.mark.parametrize("axes", [("lr",), ("lr", "beta2"), ("lr", "weight_decay", "clip")])
def test_no_setting_is_tried_twice_in_another_digit(axes: tuple[str, ...], lr: float) -> None:
    """A rate that goes up by a step and down again comes back rounded."""
    tried, _, _ = follow(
        spec(24, *axes, lr=lr), lambda setting: bowl(setting) if "beta2" in setting else 2 + setting["lr"]
    )
    amounts = [[1 - value if name == "beta2" else value for name, value in setting.items()] for setting in tried]
    assert not [pair for pair in combinations(amounts, 2) if np.allclose(*pair, rtol=2e-3, atol=0)]


def test_a_path_is_replayed_from_its_results_and_others_do_not_count() -> None:
    comparison = spec(9, "lr", "beta2")
    tried, judged, _ = follow(comparison, bowl)
    results = {setting["lr"]: bowl(setting) for setting in tried}
    tuner = comparison.tuner("adamw")
    for count in range(1, len(tried)):
        loss_by_rate = {setting["lr"]: bowl(setting) for setting in tried[:count]}
        batch = [dict(setting) for setting in tuner.ask(loss_by_rate)]
        assert batch and batch == tried[count : count + len(batch)]
    assert tuner.setting(results | {1.23e-3: 0.0}) == judged, "a trial that is not on the path is none of its settings"


def test_a_setting_of_its_own_that_diverges_is_left_behind() -> None:
    tried, judged, _ = follow(
        spec(9, "lr", "beta2"), lambda setting: math.inf if setting["lr"] > 6e-4 else 2 - setting["lr"]
    )
    assert len(tried) == 9
    assert judged is not None and judged["lr"] < 6e-4


def test_no_warm_up_and_a_narrow_range_are_walked_from() -> None:
    tried, _, _ = follow(spec(10, "lr", "warmup", "clip", steps=4), lambda setting: 2 + setting["lr"])
    assert {setting["warmup_steps"] for setting in tried} == {0, 1}, "no range: a step, and none"
    assert len({setting["clip_grad_norm"] for setting in tried}) >= 3
