"""Sweeps for tests: specifications as users write them, and stores with trials that nobody trained."""

from typing import Any

from orchestrator.kinds import read_spec
from orchestrator.sweeps import SweepSpec
from worker.spec_base import canonical_json

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
