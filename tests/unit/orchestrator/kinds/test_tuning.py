"""Tuning as it is asked for: what is refused, which runs follow which, and whose seeds a replicate has."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from orchestrator.jobs import RunStatus
from orchestrator.kinds.comparison import ComparisonSpec
from orchestrator.kinds.experiment import PlannedRun
from orchestrator.kinds.tuning import METHODS, SEARCHES, Method, Tuning
from orchestrator.tuning.tuner import RunFact, mean_losses
from tests.factories.stores import comparison_spec


def ended(run: PlannedRun, loss: float | None, status: RunStatus = RunStatus.SUCCEEDED) -> RunFact:
    """Return the fact of a run for tuning; without a loss it was lost."""
    spec = run.spec
    return RunFact(
        id=f"{run.candidate}-{spec.optimizer.lr}-{spec.seed}",
        candidate=run.candidate,
        model=spec.workload.model,
        steps=spec.workload.budget.steps or 0,
        lr=spec.optimizer.lr,
        seed=spec.seed,
        status=status,
        loss=loss,
    )


def follow(specification: ComparisonSpec, loss: Callable[[PlannedRun], float | None]) -> list[RunFact]:
    """All runs of a comparison."""
    runs: list[RunFact] = []
    pending = specification.first_runs()
    while pending:
        runs += [ended(run, loss(run)) for run in pending]
        pending = specification.follow_up_runs(runs)
    return runs


def bowl(run: PlannedRun) -> float:
    return 2.3 + 0.05 * math.log2(run.spec.optimizer.lr / 1.3e-3) ** 2 + 0.01 * run.spec.seed


def spec(
    seeds: Sequence[int] = (1, 2, 3), tuning_seeds: Sequence[int] = (7, 8), trials: int = 8, replicates: int = 1
) -> ComparisonSpec:
    tuning = Tuning(seeds=tuple(tuning_seeds), trials=trials, replicates=replicates)
    return comparison_spec(optimizers=("adamw", "adapm"), seeds=seeds, tuning=tuning)


def test_every_candidate_has_its_trials_on_the_tuning_seeds_and_is_judged_at_one_rate() -> None:
    specification = spec()
    runs = follow(specification, bowl)
    assert len(runs) == specification.run_count() == 2 * (8 * 2 + 3)
    assert specification.run_sum() == "16 trials × 2 tuning seeds + 2 candidates × 3 seeds"
    for name in specification.names():
        candidate_runs = [run for run in runs if run.candidate == name]
        trials = {(run.lr, run.seed) for run in candidate_runs if run.seed in (7, 8)}
        assert len(trials) == 8 * 2 and len({lr for lr, _ in trials}) == 8
        judged = [(run.lr, run.seed) for run in candidate_runs if run.seed not in (7, 8)]
        assert [seed for _, seed in judged] == [1, 2, 3]
        assert [lr for lr, _ in judged] == pytest.approx([1.3e-3] * 3, rel=1e-3)


@pytest.mark.parametrize("method", get_args(Method))
def test_every_method_has_a_tuner_that_begins_and_a_name(method: Method) -> None:
    fields: dict[str, Any] = {"method": method}
    if method in SEARCHES:
        fields |= {"search": ["lr"], "replicates": 3}
    tuned = comparison_spec(seeds=(1, 2, 3)).model_dump(mode="json") | {"tuning": fields}
    specification = ComparisonSpec.model_validate(tuned)
    assert specification.tuner("adamw").ask({})
    assert METHODS[method] in specification.tuning_method()


def test_a_grid_tries_exactly_the_given_rates() -> None:
    specification = comparison_spec(
        learning_rates=(1e-3, 2e-3, 4e-3), seeds=(1, 2), tuning=Tuning(method="grid", seeds=(7,))
    )
    runs = follow(specification, bowl)
    assert [run.lr for run in runs[:3]] == [1e-3, 2e-3, 4e-3]
    assert [run.seed for run in runs[3:]] == [1, 2]
    assert len(runs) == specification.run_count() == 5
    assert specification.run_sum() == "3 trials × 1 tuning seed + 1 candidate × 2 seeds"
    assert comparison_spec(learning_rates=(1e-3, 2e-3), seeds=(1, 2)).run_sum() == "2 learning rates × 2 seeds"


def test_nothing_follows_while_a_trial_goes_on_where_one_was_cancelled_or_none_has_a_result() -> None:
    specification = spec()
    first = [ended(run, bowl(run)) for run in specification.first_runs() if run.candidate == "adamw"]
    assert specification.follow_up_runs(first)
    for status in (RunStatus.QUEUED, RunStatus.RUNNING, RunStatus.CANCELLED):
        waiting = ended(specification.first_runs()[0], None, status)
        assert specification.follow_up_runs([waiting, *first[1:]]) == ()
    failed = [ended(run, None, RunStatus.FAILED) for run in specification.first_runs() if run.candidate == "adamw"]
    assert specification.follow_up_runs(failed) == ()
    assert specification.follow_up_runs([first[0], *failed[1:]])


def test_at_equal_device_hours_a_candidate_has_as_many_steps_as_its_pace_in_tuning_allows() -> None:
    plan = spec().model_copy(update={"equal": "device_hours"})
    workload = plan.workload
    schedule = workload.schedule.model_copy(update={"warmup_steps": 10})
    budget = workload.budget.model_copy(update={"steps": 100})
    plan = plan.model_copy(update={"workload": workload.model_copy(update={"budget": budget, "schedule": schedule})})
    paces = {"adamw": 1.0, "adapm": 1.25}
    slow_first = [run for run in plan.first_runs() if run.candidate == "adapm"]
    runs: list[RunFact] = []
    planned: list[PlannedRun] = []
    for pending in (slow_first, [run for run in plan.first_runs() if run.candidate == "adamw"]):
        while pending:  # the slower candidate's tuning ends first, and waits for the baseline's pace
            planned += pending
            runs += [replace(ended(run, bowl(run)), step_seconds=paces[run.candidate]) for run in pending]
            pending = list(plan.follow_up_runs(runs))
    assert len(planned) == plan.run_count()
    trained = {
        (
            run.candidate,
            run.spec.seed in plan.seeds,
            run.spec.workload.budget.steps,
            run.spec.workload.schedule.warmup_steps,
        )
        for run in planned
    }
    assert trained == {
        ("adamw", False, 100, 10),
        ("adamw", True, 100, 10),
        ("adapm", False, 100, 10),
        ("adapm", True, 80, 8),
    }
    unknown = [replace(run, step_seconds=None) for run in runs if run.seed not in plan.seeds]
    assert plan.follow_up_runs(unknown) == ()


def test_equal_device_hours_need_tuning() -> None:
    fields = spec().model_dump(mode="json") | {"equal": "device_hours"}
    assert ComparisonSpec.model_validate(fields).equal == "device_hours"
    for excluded in ({"tuning": None}, {"sequential": {"first_seeds": 2}}):
        with pytest.raises(ValidationError, match="needs tuning, which measures each candidate's pace"):
            ComparisonSpec.model_validate(fields | excluded)
    with pytest.raises(ValueError, match="the pace in tuning"):
        spec().model_copy(update={"equal": "device_hours"}).fix_settings({})


@given(st.integers(3, 12), st.lists(st.none() | st.floats(1, 9), min_size=5, max_size=5), st.integers(1, 3))
def test_every_course_ends_within_its_budget(trials: int, losses: list[float | None], tuning_seeds: int) -> None:
    specification = spec(trials=trials, tuning_seeds=range(100, 100 + tuning_seeds))
    outcomes = iter(losses * 1000)
    runs = follow(specification, lambda _run: next(outcomes))
    assert len({(run.candidate, run.lr, run.seed) for run in runs}) == len(runs) <= specification.run_count()


def test_replicates_have_seeds_and_first_rates_of_their_own() -> None:
    specification = spec(seeds=range(6), tuning_seeds=(7, 8, 9), trials=5, replicates=3)
    dealt = [specification.replicate_seeds(replicate) for replicate in range(3)]
    assert dealt == [((7,), (0, 3)), ((8,), (1, 4)), ((9,), (2, 5))]
    runs = follow(specification, bowl)
    assert len(runs) == specification.run_count() == 2 * (5 * 3 + 6)
    adamw_runs = [run for run in runs if run.candidate == "adamw"]
    for (tuning_seeds, seeds), shift in zip(dealt, (0.0, -0.5, 0.25), strict=True):
        first = sorted(run.lr for run in adamw_runs[:9] if run.seed in tuning_seeds)
        assert first == pytest.approx([1e-3 * 2 ** (shift + step) for step in (-1, 0, 1)], rel=1e-3)
        assert len({run.lr for run in adamw_runs if run.seed in tuning_seeds}) == 5
        assert len({run.lr for run in adamw_runs if run.seed in seeds}) == 1


def test_a_trial_of_which_a_run_was_lost_is_lost() -> None:
    first, second = (run for run in spec().first_runs() if run.candidate == "adamw" and run.spec.optimizer.lr == 1e-3)
    assert mean_losses([ended(first, 2.0), ended(second, 3.0)]) == {1e-3: 2.5}
    assert mean_losses([ended(first, 2.0), ended(second, None)]) == {1e-3: math.inf}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"trials": 2}, "must be at least 3: the line search begins with three rates"),
        ({"search": ["lr"]}, "must be left out: line tunes the learning rate alone"),
        ({"method": "grid", "trials": 5}, "must be left out: a grid tries the given learning_rates"),
        ({"method": "random"}, "must contain lr"),
        ({"method": "coordinate", "search": ["beta2"]}, "must contain lr"),
        ({"method": "random", "search": ["lr", "lr"]}, "is given twice"),
        ({"method": "random", "search": ["lr"], "replicates": 1}, "must be 3 or more, because a search finds other"),
        ({"replicates": 2}, "must divide the 3 tuning seeds evenly"),
    ],
)
def test_what_is_no_tuning_is_refused_with_the_way_out(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        Tuning.model_validate(fields)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"tuning": {"seeds": [0, 1]}}, "must share no seed with seeds, which has 1 too"),
        (
            {"tuning": {"seeds": [7, 8], "replicates": 2}, "seeds": [1, 2, 3]},
            "the 3 judging seeds evenly: give 4",
        ),
        (
            {
                "candidates": [
                    {"optimizer": "adamw", "learning_rates": [1e-3]},
                    {"optimizer": "adapm", "learning_rates": [1e-3, 2e-3]},
                ]
            },
            "has 1 of the 2 rates that others get; give all the same number",
        ),
    ],
)
def test_what_would_be_unfair_is_refused(changes: dict[str, object], words: str) -> None:
    fields = comparison_spec(seeds=(1, 2)).model_dump(mode="json") | changes
    with pytest.raises(ValidationError, match=words):
        ComparisonSpec.model_validate(fields)
