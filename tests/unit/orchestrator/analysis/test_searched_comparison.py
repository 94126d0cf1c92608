"""Comparisons that tuned more than the rate: the best trial is judged, verdicts name the search, intervals its luck."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.searched_verdicts import World, found_by_draws, simulate
from orchestrator.analysis.comparison import compare, regrets
from orchestrator.analysis.comparison import comparison_spec as comparison_spec_of
from orchestrator.analysis.power import design_power, openings_of
from orchestrator.kinds.comparison import ComparisonSpec
from orchestrator.kinds.experiment import PlannedRun
from orchestrator.kinds.tuning import Tuning
from orchestrator.records import Comparison, Conclusion, ExperimentWithRuns
from orchestrator.specs.preview import DesignPower
from tests.factories.comparison import Outcome, evaluated_on, records, tuned_records
from tests.factories.evidence import DIVERGED
from tests.factories.stores import comparison_spec

Loss = Callable[[str, float, float], float]
"""Of a candidate at a rate and a beta2."""


def answer(loss: Loss, trials: int = 8) -> tuple[ComparisonSpec, Comparison]:
    """AdamW, AdaPM and SGD, each judged at its best trial; seeds shift all losses alike, and a little each."""
    spec = comparison_spec(
        optimizers=("adamw", "adapm", "sgd"),
        learning_rates=(1e-3,),
        seeds=(1, 2, 3, 4, 5),
        tuning=Tuning(seeds=(0,), search=("lr", "beta2"), method="random", trials=trials),
    )
    spec = evaluated_on(spec)

    def outcome(name: str, lr: float, seed: int) -> float:
        beta2 = spec.settings(name)[lr].get("beta2", 0.95)
        assert isinstance(beta2, float)
        return loss(name, lr, beta2) + 0.01 * seed + 0.0001 * ((seed * (1 + spec.names().index(name))) % 4)

    best = {
        name: min(settings, key=lambda lr, name=name: outcome(name, lr, 0))  # type: ignore[misc]
        for name in spec.names()
        for settings in [spec.settings(name)]
    }
    judged = tuple(spec.planned_run(name, lr=best[name], seed=seed) for name in spec.names() for seed in spec.seeds)
    return spec, compare(*records(spec, outcome, planned=(*spec.first_runs(), *judged)))


def alike(name: str, lr: float, beta2: float) -> float:
    """AdaPM is better by 0.05 at every setting."""
    return 2.0 + 0.1 * math.log(lr / 2e-3) ** 2 + beta2 - 0.05 * (name == "adapm")


def test_the_verdict_names_what_was_tuned_and_what_was_not() -> None:
    spec, found = answer(alike)
    adapm = next(row for row in found.rows if row.candidate == "adapm")
    assert adapm.conclusion is Conclusion.BETTER
    assert adapm.verdict.endswith(
        " Tuned: lr, beta2; 8 random trials each. Not tuned: warm-up, beta1, weight decay, clip."
    )
    assert adapm.final is not None and adapm.best_lr is not None
    assert adapm.final.setting == dict(spec.settings("adapm")[adapm.best_lr])
    assert [one.setting for one in adapm.learning_rates] == [
        dict(spec.settings("adapm")[lr]) for lr in sorted(spec.planned_rates("adapm"))
    ]
    assert (adapm.edge_of_grid, adapm.extended_rates) == (False, 0)


def test_the_notes_say_what_was_found_and_whom_an_axis_is_missing_for() -> None:
    _, found = answer(alike)
    (row,) = (row for row in found.rows if row.candidate == "adapm")
    assert row.final is not None
    setting = row.final.setting
    assert f"AdaPM, judged at: lr {setting['lr']:g}, beta2 {setting['beta2']:g}." in found.notes
    assert "SGD is not searched over beta2: it has none, or one of zero." in found.notes
    assert any(
        note.startswith("Tuned by random search: lr, beta2; 8 settings of each candidate") for note in found.notes
    )
    assert not any("Learning rates were chosen" in note for note in found.notes)


def test_who_answers_alike_to_every_setting_has_the_same_luck() -> None:
    _, found = answer(alike)
    (row,) = (row for row in found.rows if row.candidate == "adapm")
    assert row.difference is not None and row.difference.regret == pytest.approx(0.0, abs=1e-12)


def test_the_interval_holds_the_luck_of_the_draws() -> None:
    """AdaPM's best rate is eight times AdamW's: which of the two a draw lies near is luck, and no verdict."""

    def apart(name: str, lr: float, beta2: float) -> float:
        best = 4e-3 if name == "adapm" else 5e-4
        return 2.0 + 0.1 * math.log(lr / best) ** 2 - 0.01 * (name == "adapm")

    _, found = answer(apart)
    (row,) = (row for row in found.rows if row.candidate == "adapm")
    assert row.difference is not None and row.difference.low is not None and row.difference.high is not None
    assert row.difference.regret == row.difference.baseline_regret > 0.02
    assert row.difference.high - row.difference.low > 2 * row.difference.regret
    assert row.conclusion is Conclusion.UNDECIDED
    luck = row.difference.regret
    assert any(note.startswith("The intervals are wider for the luck of the draws") for note in found.notes)
    assert any(f"AdaPM {luck:.4f}" in note for note in found.notes)
    assert any("an optimizer that must be tuned more exactly finds less" in note for note in found.notes)


@pytest.mark.parametrize(
    "world",
    [
        World(axes=6, trials=24, optima="near", sensitivities=(1.0, 5.0)),
        World(axes=6, trials=24, optima="near", rise="unlike"),
        World(axes=2, trials=8, optima="apart", rise="kink", sensitivities=(1.0, 5.0)),
        World(axes=1, trials=3, optima="near", rise="kink", sensitivities=(1.0, 5.0)),
        World(axes=3, trials=4, optima="apart", cliff="both", sensitivities=(1.0, 5.0)),
    ],
)
def test_the_interval_holds_what_so_many_draws_find_however_unlike_the_optimizers_are(world: World) -> None:
    """120 experiments, two standard errors of 5 %; `benchmarks.searched_verdicts` has more worlds."""
    found = simulate(world, 120, 0.0, 0)
    assert found["held"] >= 0.91
    assert found["decided"] <= 0.09


def test_of_too_few_trained_draws_there_is_no_verdict_and_nothing_to_keep() -> None:
    """AdaPM diverges at all but its lowest rate, which is a lucky one: others of its draws would have found nothing."""
    spec, _ = answer(alike)
    lowest = min(spec.settings("adapm"))

    def outcome(name: str, lr: float, seed: int) -> Outcome:
        if name == "adapm" and lr > lowest:
            return DIVERGED
        return 2.0 + 0.001 * lr - 0.5 * (name == "adapm") + 0.01 * seed + 0.0001 * (seed * len(name) % 4)

    best = {name: min(spec.settings(name)) for name in spec.names()}
    judged = tuple(spec.planned_run(name, lr=lr, seed=seed) for name, lr in best.items() for seed in spec.seeds)
    experiment, runs = records(spec, outcome, planned=(*spec.first_runs(), *judged))
    rows = {row.candidate: row for row in compare(experiment, runs).rows}
    difference = rows["adapm"].difference
    assert difference is not None and difference.rate_is_open and difference.low is None and difference.regret == 0
    assert rows["adapm"].conclusion is Conclusion.UNDECIDED
    assert "too few random trials were trained" in rows["adapm"].verdict
    assert rows["sgd"].difference is not None and rows["sgd"].difference.low is not None
    kept = regrets(spec, runs)
    assert kept["adapm"] is None and kept["adamw"] is None and kept["sgd"] is not None
    assert len(openings_of(experiment, runs)) == 1, "advice takes no search for one that left nothing open"


def test_what_draws_find_in_expectation_is_known_of_one_axis() -> None:
    """The lowest of n uniform distances from the middle is 1 / (n + 1) in expectation; the first of n + 1 trials is off
    the middle by the optimum's place, here at an end, where distances reach twice as far."""
    world = World(axes=1, trials=10, optima="alike", rise="kink", tuning_seeds=100_000_000)
    found = found_by_draws(world, np.array([1.0]), 1.0, False, np.random.default_rng(0))
    # Of nine draws, uniform in (0, 2), and one at 1: the integral of (1 - x / 2)^9 from 0 to 1, times 0.1 a unit.
    assert found == pytest.approx(0.1 * 2 / 10 * (1 - 0.5**10), rel=0.15)


def descended(loss: Loss, lost: Callable[[str, float, float], bool] = lambda *_: False) -> Comparison:
    """AdamW and AdaPM after coordinate descent over rate and beta2, all seeds judged."""
    return compare(*descent(loss, lost))


def descent(loss: Loss, lost: Callable[[str, float, float], bool]) -> ExperimentWithRuns:
    """Its records."""
    spec = comparison_spec(
        optimizers=("adamw", "adapm"),
        learning_rates=(1e-3,),
        seeds=(1, 2, 3, 4, 5),
        tuning=Tuning(seeds=(7, 8), search=("lr", "beta2"), method="coordinate", trials=11),
    )

    def outcome(run: PlannedRun) -> Outcome:
        name, lr, seed = run.candidate, run.spec.optimizer.lr, run.spec.seed
        beta2 = spec.searched_parameters(0, run.spec)["beta2"]
        assert isinstance(beta2, float)
        if lost(name, lr, beta2):
            return DIVERGED
        return loss(name, lr, beta2) + 0.01 * seed + 0.0001 * ((seed * (1 + spec.names().index(name))) % 4)

    return tuned_records(spec, outcome)


def test_a_descent_is_named_and_its_interval_covers_what_it_left_open() -> None:
    found = descended(alike)
    (row,) = (row for row in found.rows if row.candidate == "adapm")
    assert row.conclusion is Conclusion.BETTER
    assert row.verdict.endswith(" Tuned: lr, beta2; 11 trials each. Not tuned: warm-up, beta1, weight decay, clip.")
    assert (len(row.learning_rates), row.extended_rates, row.edge_of_grid) == (11, 0, False)
    assert row.final is not None and row.final.setting in [dict(one.setting) for one in row.learning_rates]
    assert row.final.setting["lr"] == pytest.approx(2e-3, rel=0.03), "the last trial, between the others"
    difference = row.difference
    assert difference is not None and difference.low is not None and difference.high is not None
    assert difference.regret > 0 < difference.baseline_regret
    assert difference.high - difference.low > difference.regret + difference.baseline_regret
    notes = " ".join(found.notes)
    assert "Tuned by coordinate descent: lr, beta2; 11 settings of each candidate" in notes
    assert (
        "may have been missed" in notes
        and "The intervals are wider for what a better setting within the ranges" in notes
    )
    assert "luck of the draws" not in notes
    assert "AdaPM, judged at: lr 0.002, beta2 0.8 (the end of its range)." in found.notes
    assert "Beyond the end of a range a better setting may lie, which no interval holds." in found.notes


def test_who_was_seen_at_one_place_of_an_axis_is_not_called_worse() -> None:
    found = descended(
        lambda name, lr, beta2: 2.0 + 0.5 * (name == "adapm"),
        lost=lambda name, lr, beta2: name == "adapm" and not math.isclose(lr, 1e-3, rel_tol=1e-5),
    )
    (row,) = (row for row in found.rows if row.candidate == "adapm")
    assert row.difference is not None and row.difference.rate_is_open
    assert row.conclusion is Conclusion.UNDECIDED


def test_a_search_that_says_nothing_of_what_it_missed_does_not_say_that_it_missed_nothing() -> None:
    """Not told apart from AdamW, and every rate but one was lost: the next search is not taken to miss as little."""
    experiment, runs = descent(
        lambda name, lr, beta2: 2.0,
        lost=lambda name, lr, _: name == "adapm" and not math.isclose(lr, 1e-3, rel_tol=1e-5),
    )
    spec = comparison_spec_of(experiment)
    (row,) = (row for row in compare(experiment, runs).rows if row.difference)
    assert row.difference is not None and row.difference.rate_is_open and row.difference.regret == 0
    assert (row.difference.low, row.difference.high) == (None, None)
    assert openings_of(experiment, runs) == []
    found = design_power(spec, [(experiment, runs)])
    assert isinstance(found, DesignPower) and (found.searches, found.left_open) == (0, None)
    assert found.searches_left_out == 1
    told = design_power(spec, [(experiment, runs), descent(alike, lost=lambda *_: False)])
    assert isinstance(told, DesignPower) and (told.searches, told.searches_left_out) == (1, 1)


def test_a_descent_that_has_seen_a_plateau_alone_decides_nothing() -> None:
    """The other's loss lies 0.1 nats too high but in a narrow valley, which half of the paths never meet."""
    world = World(axes=3, trials=16, optima="near", method="coordinate", rise="valley")
    assert simulate(world, 30, 0.0, 0)["decided"] <= 0.07
    assert simulate(replace(world, rise="smooth"), 30, 0.03, 0)["decided"] >= 0.85
