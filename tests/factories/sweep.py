"""Sweeps for tests: specifications as users write them, and stores with trials that nobody trained."""

from typing import Any

from orchestrator.jobs import RunStatus
from orchestrator.kinds.registry import read_spec
from orchestrator.kinds.sweep import SweepSpec
from orchestrator.records import ExperimentRecord, Progress, StateCounts
from orchestrator.store.database import Database
from orchestrator.store.queue import trials
from orchestrator.sweeps.trials import planned_parameters, trial_run
from worker.schema import canonical_json

RATES = {"kind": "log-uniform", "low": 1e-4, "high": 1e-1}


def sweep_fields(**changes: Any) -> dict[str, Any]:
    """A small valid sweep: two optimizers, two trials each."""
    fields: dict[str, Any] = {
        "kind": "sweep",
        "name": "a sweep",
        "workload": {"model": "gpt2-tiny", "budget": {"steps": 10}, "evaluation": {"every_steps": 2}},
        "candidates": [
            {"optimizer": "adamw", "space": {"lr": RATES}},
            {"optimizer": "adapm", "space": {"lr": RATES, "rank_ratio": {"kind": "catalog"}}},
        ],
        "algorithm": "random",
        "trials": 2,
    }
    return fields | changes


def sweep_spec(**changes: Any) -> SweepSpec:
    """The same, checked, as the store gives it back."""
    spec = read_spec(canonical_json(sweep_fields(**changes)))
    assert isinstance(spec, SweepSpec)
    return spec


def sweep_record(spec: SweepSpec, count: int, *, done: bool = True) -> ExperimentRecord:
    """A sweep with so many trials, as the store tells of it."""
    return ExperimentRecord(
        id="s0",
        name=spec.name,
        kind="sweep",
        spec=spec,
        spec_hash=spec.content_hash(),
        created_at=0.0,
        ended_at=9.0 if done else None,
        counts=StateCounts(total=count, by_status={RunStatus.SUCCEEDED: count}, growing=not done),
        progress=Progress(steps_done=0, steps_total=0, tokens_per_second=None, seconds_left=None),
    )


def add_trial(database: Database, sweep_id: str, spec: SweepSpec, number: int) -> None:
    """Queue the trial of that number, as the sweep's driver does."""
    parameters = planned_parameters(spec, number)
    assert parameters is not None
    trials.add(database, sweep_id, spec, number, trial_run(spec, number, parameters))
