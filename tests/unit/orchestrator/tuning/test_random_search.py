"""Random search: what is drawn, alike for all candidates, and within the ranges; the best trial is judged."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.kinds.comparison import Candidate, ComparisonSpec
from orchestrator.kinds.tuning import Tuning
from orchestrator.tuning.random_search import RandomSearch
from orchestrator.tuning.ranges import AXES, Prior
from orchestrator.tuning.tuner import rate_of
from tests.factories.stores import comparison_spec


def searched(*axes: str, trials: int = 6, optimizers: tuple[str, ...] = ("adamw",), seed: int = 7) -> ComparisonSpec:
    tuning = {"seeds": [seed, 18, 19], "search": axes or AXES, "method": "random", "trials": trials, "replicates": 3}
    return comparison_spec(optimizers=optimizers, steps=1000, seeds=(1, 2, 3), tuning=Tuning.model_validate(tuning))


def tried(comparison: ComparisonSpec, name: str = "adamw") -> list[dict[str, Any]]:
    return [dict(setting) for setting in comparison.tuner(name).ask({})]


def test_the_first_trial_is_the_candidates_own_setting() -> None:
    assert tried(searched())[0] == {
        "lr": 1e-3, "warmup_steps": 0, "beta1": 0.9, "beta2": 0.95, "weight_decay": 0.1, "clip_grad_norm": 1.0
    }  # fmt: skip


def test_draws_fill_the_ranges_and_stay_within() -> None:
    """A factor of 8 of the rate, a decade of everything else, in 1 - beta."""
    drawn = tried(searched(trials=200))[1:]
    ranges = {"lr": (1e-3 / 8, 8e-3), "warmup_steps": (10, 200), "weight_decay": (0.01, 1), "clip_grad_norm": (0.1, 10)}
    of_betas = {"beta1": (0.01, 0.9), "beta2": (0.005, 0.5)}
    for field, (low, high) in (ranges | of_betas).items():
        places = [
            math.log((1 - setting[field] if field in of_betas else setting[field]) / low) / math.log(high / low)
            for setting in drawn
        ]
        assert -0.01 <= min(places) <= 0.05 and 0.95 <= max(places) <= 1.01, field


@given(st.integers(2, 256), st.integers(0, 2**31), st.floats(1e-6, 1.0))
def test_a_search_asks_for_its_trials_at_once_and_never_for_a_rate_twice(trials: int, seed: int, own: float) -> None:
    tuner = RandomSearch(priors={"lr": Prior(own=own, low=own / 8, high=own * 8)}, trials=trials, seed=seed)
    rates = [rate_of(setting) for setting in tuner.ask({})]
    assert len({*rates}) == len(rates) == trials
    assert tuner.ask(dict.fromkeys(rates, 2.0)) == ()
    assert [rate_of(setting) for setting in tuner.ask(dict.fromkeys(rates[:-1], 2.0))] == rates[-1:]


def test_the_draws_depend_on_the_first_tuning_seed_alone() -> None:
    assert tried(searched()) == tried(searched(trials=20))[:6], "more trials leave the first ones as they are"
    assert [setting["lr"] for setting in tried(searched())] == [setting["lr"] for setting in tried(searched("lr"))]
    comparison = searched(seed=9)
    assert tried(comparison)[0] == tried(searched())[0]
    assert tried(comparison)[1:] != tried(searched())[1:]


def test_candidates_have_the_same_draws_each_in_its_own_range() -> None:
    comparison = searched("lr", "beta2", optimizers=("adamw", "adapm", "sgd"))
    assert tried(comparison, "adamw") == tried(comparison, "adapm")
    tenfold = Candidate(optimizer="sgd", learning_rates=(1e-2,))
    comparison = comparison.model_copy(update={"candidates": (*comparison.candidates[:2], tenfold)})
    assert set(comparison.priors("sgd")) == {"lr"}, "an axis that a candidate has not is skipped for it"
    rates = zip(tried(comparison, "adamw"), tried(comparison, "sgd"), strict=True)
    assert [other["lr"] / setting["lr"] for setting, other in rates] == pytest.approx([10.0] * 6, rel=1e-3)


@given(st.lists(st.floats(1, 10) | st.just(math.inf), min_size=6, max_size=6))
def test_the_best_trial_is_judged_and_none_where_all_were_lost(losses: list[float]) -> None:
    tuner = searched().tuner("adamw")
    settings = tuner.ask({})
    best = tuner.setting({rate_of(setting): loss for setting, loss in zip(settings, losses, strict=True)})
    if math.isinf(min(losses)):
        assert best is None
    else:
        assert best in [setting for setting, loss in zip(settings, losses, strict=True) if loss == min(losses)]


def test_a_trial_is_a_run_with_its_setting() -> None:
    comparison = searched(trials=3)
    assert comparison.run_count() == 3 * 3 + 3
    runs = comparison.first_runs()
    assert [run.spec.seed for run in runs] == [7, 7, 7, 18, 18, 18, 19, 19, 19]
    settings = [setting for replicate in range(3) for setting in comparison.tuner("adamw", replicate).ask({})]
    for run, setting in zip(runs, settings, strict=True):
        spec = run.spec
        assert comparison.searched_parameters(0, spec) == setting
        assert spec.optimizer.options == {name: setting[name] for name in ("beta1", "beta2", "weight_decay")}
        assert spec.workload.schedule.warmup_steps == setting["warmup_steps"]
        assert spec.workload.clip_grad_norm == setting["clip_grad_norm"]
