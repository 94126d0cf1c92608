"""Sweeps for tests: specifications as users write them, and stores with trials that nobody trained."""

from typing import Any

import pytest
from pydantic import ValidationError

from orchestrator.kinds.registry import ExperimentSpec, read_spec
from orchestrator.kinds.sweep import SweepSpec
from orchestrator.records import ExperimentRecord
from orchestrator.specs.faults import faults
from orchestrator.store.database import Database
from orchestrator.store.queue import trials
from orchestrator.sweeps.trials import planned_parameters, trial_run
from tests.factories.comparison import experiment_record
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


def refusal_of(fields: dict[str, Any]) -> dict[str, str]:
    """What is allowed at each place of an experiment that is refused, as REST tells it."""
    with pytest.raises(ValidationError) as refused:
        read_spec(canonical_json(fields))
    return {fault.pointer: fault.allowed for fault in faults(refused.value.errors(include_url=False), ExperimentSpec)}


def sweep_record(spec: SweepSpec, count: int, *, done: bool = True) -> ExperimentRecord:
    """A sweep with so many trials, as the store tells of it."""
    record = experiment_record(spec, count, "s0", growing=not done)
    return record.model_copy(update={"ended_at": 9.0 if done else None})


def add_trial(database: Database, sweep_id: str, spec: SweepSpec, number: int) -> str | None:
    """Queue the trial of that number, as the sweep's driver does; its run, or None where the sweep takes no more."""
    parameters = planned_parameters(spec, number)
    assert parameters is not None
    return trials.add(database, sweep_id, spec, number, trial_run(spec, number, parameters))


def add_trials(database: Database, sweep_id: str, spec: SweepSpec, count: int = 4) -> None:
    """Queue the first trials of a sweep, which are all that it gets."""
    for number in range(count):
        add_trial(database, sweep_id, spec, number)
    trials.close(database, sweep_id)
