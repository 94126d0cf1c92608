"""Comparisons that tuned more than the rate: the best trial is judged, verdicts name the search, intervals its luck."""

import math
from collections.abc import Callable

import pytest

from orchestrator.analysis.comparison import compare
from orchestrator.kinds.comparison import ComparisonSpec
from orchestrator.kinds.tuning import Tuning
from orchestrator.records import Comparison, Conclusion
from tests.factories.comparison import records
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
    spec = spec.model_copy(
        update={
            "workload": spec.workload.model_copy(
                update={"evaluation": spec.workload.evaluation.model_copy(update={"sequences": 10**9})}
            )
        }
    )

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
    assert adapm.verdict.endswith(" Tuned: lr, beta2; 8 trials each. Not tuned: warm-up, beta1, weight decay, clip.")
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
    assert row.difference is not None and row.difference.luck_of_draws == pytest.approx(0.0, abs=1e-12)


def test_the_interval_holds_the_luck_of_the_draws() -> None:
    """AdaPM's best rate is eight times AdamW's: which of the two a draw lies near is luck, and no verdict."""

    def apart(name: str, lr: float, beta2: float) -> float:
        best = 4e-3 if name == "adapm" else 5e-4
        return 2.0 + 0.1 * math.log(lr / best) ** 2 - 0.01 * (name == "adapm")

    _, found = answer(apart)
    (row,) = (row for row in found.rows if row.candidate == "adapm")
    assert row.difference is not None and row.difference.low is not None and row.difference.high is not None
    assert row.difference.luck_of_draws > 0.02
    assert row.difference.high - row.difference.low > 2 * row.difference.luck_of_draws
    assert row.conclusion is Conclusion.UNDECIDED
