"""Sweeps as users write them: what is refused in which words, what the catalog fills in, which trials follow."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.kinds.comparison import ComparisonSpec
from orchestrator.kinds.registry import read_spec
from orchestrator.kinds.sweep import SweepSpec
from orchestrator.sweeps.trials import (
    grid_points,
    planned_parameters,
    trial_run,
)
from orchestrator.tuning.search_spaces import LogUniform, Uniform, contains
from tests.factories.stores import comparison_spec
from tests.factories.sweep import refusal_of, sweep_fields, sweep_spec
from worker.schema import canonical_json


def one(optimizer: str = "adamw", **fields: Any) -> dict[str, Any]:
    return {"candidates": [{"optimizer": optimizer, **fields}]}


def test_kinds_are_told_apart_and_a_comparison_needs_none():
    assert isinstance(read_spec(canonical_json(sweep_fields())), SweepSpec)
    plain = comparison_spec().model_dump(mode="json")
    del plain["kind"]
    assert isinstance(read_spec(canonical_json(plain)), ComparisonSpec)
    assert [spec.grows() for spec in (sweep_spec(), comparison_spec())] == [True, False]
    assert sweep_spec().first_runs() == () and len(comparison_spec().first_runs()) == 2


def test_without_a_space_the_catalogs_rates_are_searched():
    (candidate,) = sweep_spec(**one()).candidates
    assert candidate.space == {"lr": LogUniform(low=7.5e-05, high=0.0048, points=7)}


def test_the_catalogs_ranges_are_written_out():
    space = {"rank_ratio": {"kind": "catalog"}, "beta1": {"kind": "catalog"}}
    (candidate,) = sweep_spec(**one("adapm", space=space)).candidates
    assert candidate.ranges() == {"beta1": Uniform(low=0.0, high=0.99), "rank_ratio": LogUniform(low=0.005, high=0.5)}


@pytest.mark.parametrize(
    ("changes", "pointer", "words"),
    [
        (one(space={"lr": {"kind": "uniform", "low": -1, "high": 1}}), "/candidates/0/space/lr", "in (0, 1e+06]"),
        (
            one(space={"beta1": {"kind": "uniform", "low": 0.5, "high": 1.5}}),
            "/candidates/0/space/beta1",
            "a number in [0, 1)",
        ),
        (one(space={"beta3": {"kind": "uniform", "low": 0, "high": 1}}), "/candidates/0/space/beta3", "unknown"),
        (one(space={"lr": {"kind": "catalog"}}, lr=1e-3), "/candidates/0/space/lr", "held fixed as well"),
        (one("adapm", space={"clip": {"kind": "choice", "values": [0]}}), "/candidates/0/space/clip", "(0, inf)"),
        (one("adapm", space={"clip": {"kind": "catalog"}, "inner_iterations": {"kind": "catalog"}}),
         "/candidates/0/space/inner_iterations", "no range"),
        (
            one(space={"warmup_steps": {"kind": "integer", "low": 0, "high": 10}}),
            "/candidates/0/space/warmup_steps",
            "below workload.budget.steps = 10",
        ),
        ({"algorithm": "grid", "trials": None}, "/candidates/1/space", "a grid of 25 points, the first"),
        (one(space={"lr": {"kind": "catalog"}}) | {"algorithm": "grid", "trials": 3}, "/trials", "at least 7"),
        ({"trials": 501}, "/trials", "makes 1002 trials over all candidates; at most 1000"),
        ({"candidates": [{"optimizer": "adamw"}] * 2}, "/candidates/1/label", "give it a label"),
        ({"kind": "swep"}, "/kind", "did you mean sweep? It must be one of comparison, scaling, sweep"),
    ],
)  # fmt: skip
def test_what_is_refused_names_its_place(changes: dict[str, Any], pointer: str, words: str):
    ((place, allowed),) = refusal_of(sweep_fields(**changes)).items()
    assert place == pointer
    assert words in allowed


@pytest.mark.parametrize(
    ("rank", "trials", "settings"),
    [
        ({"kind": "choice", "values": [0.25, 0.5]}, 5, 4),
        ({"kind": "choice", "values": [0.25, 0.5]}, 4, None),
        ({"kind": "uniform", "low": 0.25, "high": 0.5}, 100, None),
    ],
)
def test_more_trials_than_settings_are_said(rank: dict[str, Any], trials: int, settings: int | None):
    space = {"lr": {"kind": "choice", "values": [0.001, 0.002]}, "rank_ratio": rank}
    sentences = sweep_spec(**one("adapm", space=space), trials=trials).warnings()
    assert len(sentences) == (settings is not None)
    assert all(f"only {settings} different settings" in sentence for sentence in sentences)


@given(number=st.integers(0, 39), seed=st.integers(0, 2**31 - 1))
def test_a_trial_is_what_its_run_says(number: int, seed: int):
    """The hyperparameters are a function of (seed, number), lie in the space, and are found again in the run."""
    spec = sweep_spec(trials=20, seed=seed)
    parameters = planned_parameters(spec, number)
    assert parameters == planned_parameters(spec, number) and parameters is not None
    searched = spec.candidate_of(number)
    assert all(contains(domain, parameters[name]) for name, domain in searched.ranges().items())
    run = trial_run(spec, number, parameters)
    assert (run.candidate, run.spec.seed) == (searched.name(), seed)
    assert searched.parameters_of(run.spec) == parameters


def test_the_first_trial_of_each_optimizer_is_the_catalogs_default():
    spec = sweep_spec()
    assert [planned_parameters(spec, number) for number in (0, 1)] == [{"lr": 6e-4}, {"lr": 6e-4, "rank_ratio": 0.05}]


def test_a_grid_is_walked_point_by_point():
    space = {"lr": {"kind": "choice", "values": [1e-3, 2e-3]}, "warmup_steps": {"kind": "choice", "values": [0, 5]}}
    spec = sweep_spec(**one(space=space), algorithm="grid", trials=None)
    assert spec.run_count() == 4
    assert [planned_parameters(spec, number) for number in range(4)] == list(grid_points(spec.candidates[0]))
    assert planned_parameters(spec, 3) == {"lr": 2e-3, "warmup_steps": 5}
    warmed = trial_run(spec, 3, {"lr": 2e-3, "warmup_steps": 5})
    assert warmed.spec.workload.schedule.warmup_steps == 5
