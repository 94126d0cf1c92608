"""A sweep through the real service and Ray Tune, whose driver is killed with -9 in the middle of it.

Every trial is in the finished table once, the hopeless ones were stopped early, and what had ended was left alone.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import psutil
import pytest

from api.bundles.publication import publish
from api.client.client import Client
from orchestrator.jobs import RunStatus
from orchestrator.kinds.sweep import SweepSpec
from orchestrator.records import ExperimentRecord, RunRecord
from orchestrator.sweeps.trials import planned_parameters
from tests.chaos.processes import living, sweep_drivers_of
from tests.factories.bundles import KEY
from tests.factories.sweep import sweep_spec
from tests.factories.waiting import until
from worker.records.result import Verdict

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]

GOOD, HOPELESS = 1e-3, 1e-7


def asha() -> SweepSpec:
    """Return a sweep with one trial after another, so that ASHA's decisions are the same on every machine: the hopeless
    rate comes second, is behind the good one at the first rung, and has seconds left to hear of it."""
    return sweep_spec(
        name="chaos of a sweep",
        workload={
            "model": "gpt2-tiny",
            "data": {"sequence_length_tokens": 32},
            "budget": {"steps": 450, "batch_sequences": 2},
            "evaluation": {"every_steps": 20, "sequences": 4},
        },
        candidates=[{"optimizer": "adamw", "space": {"lr": {"kind": "choice", "values": [GOOD, HOPELESS]}}}],
        algorithm="asha",
        trials=4,
        concurrency=1,
        seed=SEED,
    )


SEED = 13
"""Draws good, hopeless, good, hopeless."""


def kill_its_driver(
    supervisor: psutil.Process, client: Client, spec: SweepSpec
) -> tuple[ExperimentRecord, tuple[RunRecord, ...]]:
    """kill -9 of the driver of a sweep of which two trials have ended and one has not; the sweep, and its runs before.

    Another sweep is submitted where all trials had ended before that was seen: it depends on no machine's speed.
    """
    while True:
        sweep = client.submit(spec).experiment
        until(partial(two_trials_have_ended, client, sweep.id), "two trials have ended")
        earlier_runs = client.runs(experiment_id=sweep.id)
        drivers = sweep_drivers_of(supervisor)
        for driver in drivers:
            driver.kill()
        until(partial(none_lives, drivers), "the killed driver is gone")
        if drivers and not client.experiment(sweep.id).counts.done():
            until(lambda: sweep_drivers_of(supervisor), "another driver lives")
            return sweep, earlier_runs


def two_trials_have_ended(client: Client, sweep_id: str) -> bool:
    """Whether two trials of the sweep have, at least."""
    return client.experiment(sweep_id).counts.ended() >= 2


def none_lives(processes: Sequence[psutil.Process]) -> bool:
    """Whether all of them are gone."""
    return not living(processes)


def test_a_sweep_whose_driver_is_killed_has_each_trial_once(service_url: str, tmp_path: Path):
    spec = asha()
    rates = [(planned_parameters(spec, number) or {})["lr"] for number in range(4)]
    assert rates == [GOOD, HOPELESS, GOOD, HOPELESS]
    # This process is the supervisor of the service that its tests share.
    with Client(service_url) as client:
        sweep, earlier_runs = kill_its_driver(psutil.Process(), client, spec)
        until(lambda: client.experiment(sweep.id).counts.done(), "the sweep is done")
        runs = client.runs(experiment_id=sweep.id)
        report = client.sweep(sweep.id)
        comparison = client.sweep_comparison(sweep.id, seeds=2)
        published = publish(client, sweep.id, tmp_path / "bundle", KEY).document
    assert [(run.position, run.lr, run.status) for run in runs] == [
        (number, rate, RunStatus.SUCCEEDED) for number, rate in enumerate(rates)
    ]
    assert runs[: len(earlier_runs)][:2] == earlier_runs[:2], "what had ended was left alone"
    verdicts = [trial.verdict for trial in report.trials]
    assert verdicts == [Verdict.CONVERGED, Verdict.STOPPED_EARLY] * 2
    assert [trial.steps < trial.steps_total for trial in report.trials] == [False, True] * 2
    # Equal hyperparameters and an equal seed: to the bit the same training, which also says that both were whole ones.
    assert report.trials[0].objective == report.trials[2].objective is not None
    assert report.best() == report.trials[0]
    assert (comparison.candidates[0].learning_rates, comparison.seeds) == ((GOOD,), (SEED + 1, SEED + 2))
    assert published.sweep == report
