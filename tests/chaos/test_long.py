"""The long chaos run, `make chaos`: 60 trainings while everything is killed at random for CHAOS_MINUTES.

    CHAOS_MINUTES=10 CHAOS_SEED=1 python -m pytest tests/chaos/test_long.py -s

Experiments are submitted in the midst of it, with a key, again and again until one is acknowledged. Each of their runs
must end once, with every point and loss of an undisturbed run, to the bit.
"""

import os
import random
import time
from collections import Counter
from pathlib import Path

import pytest
import sqlalchemy as sa

from api.client.client import Client
from orchestrator.jobs import RunAction, RunStatus
from orchestrator.kinds.comparison import ComparisonSpec
from orchestrator.services.composition import Services
from orchestrator.store.admin import maintenance
from orchestrator.store.database import Database
from orchestrator.store.tables import attempts, events, results
from tests.chaos.rampage import Rampage, rampage_on, until
from tests.chaos.undisturbed import course_of, undisturbed_courses
from tests.factories.services import make_services
from tests.factories.stores import postgresql_process, require_postgresql
from tests.integration.small_comparison import small_comparison

MINUTES = float(os.environ.get("CHAOS_MINUTES", "0"))
SEED = int(os.environ.get("CHAOS_SEED", "1"))
EXPERIMENTS = int(os.environ.get("CHAOS_EXPERIMENTS", "10"))
"""The number of experiments of six runs each."""
LONG_RUN_STEPS, SHORT_RUN_STEPS = 400, 60
"""The steps of long and short runs: some last longer than the time between two checkpoints, so that resuming is
tested."""
QUIET_SECONDS = 3600.0
"""The time for the rest when the kills are over; a bound, not an expectation."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.postgres,
    pytest.mark.timeout(0),
    pytest.mark.skipif(MINUTES <= 0, reason="the long form; `make chaos` runs it"),
]


def specification(number: int) -> ComparisonSpec:
    steps = LONG_RUN_STEPS if number % 4 == 3 else SHORT_RUN_STEPS
    return small_comparison(name=f"chaos {number}", steps=steps, seeds=(1, 2))


class Submitter:
    """Submits one experiment after the other, each until it is acknowledged."""

    def __init__(self) -> None:
        self.acknowledged: list[str] = []

    def go_on(self, rampage: Rampage) -> None:
        number = len(self.acknowledged)
        if number < EXPERIMENTS:
            rampage.ask(lambda client: self._submit(client, number))

    def _submit(self, client: Client, number: int) -> None:
        self.acknowledged.append(client.submit(specification(number), key=f"chaos-{number}").experiment.id)


def test_nothing_is_lost_or_doubled_while_everything_is_killed(tmp_path: Path) -> None:
    folder, submitter, chance = tmp_path / "data", Submitter(), random.Random(SEED)
    with postgresql_process(require_postgresql()) as server, rampage_on(folder, server, 2, SEED) as rampage:
        rampage.keep_up()
        until(lambda: rampage.ask(lambda client: client.experiments()) is not None, rampage, "the service answers", 600)
        started = time.monotonic()
        next_strike = started + 20
        while time.monotonic() < started + 60 * MINUTES:
            rampage.keep_up()
            submitter.go_on(rampage)
            if time.monotonic() > next_strike:
                print(f"{time.monotonic() - started:6.0f} s  kill -9 {rampage.strike()}", flush=True)
                next_strike = time.monotonic() + chance.uniform(4, 24)
            time.sleep(1.0)

        def all_ended() -> bool:
            submitter.go_on(rampage)
            all_acknowledged = len(submitter.acknowledged) == EXPERIMENTS
            return all_acknowledged and rampage.ask(lambda client: _are_done(client, submitter.acknowledged)) is True

        until(all_ended, rampage, "every run has ended", QUIET_SECONDS)
        seconds = time.monotonic() - started
        database = Database(server.url)
        services = make_services(database, folder)
        try:
            _report_and_judge(services, database, rampage, submitter.acknowledged, seconds, tmp_path)
        finally:
            database.close()


def _are_done(client: Client, experiment_ids: list[str]) -> bool:
    """Whether all have ended; a run that was killed three times is tried again, as its owner would."""
    for experiment_id in experiment_ids:
        counts = client.experiment(experiment_id).counts
        if counts.by_status.get(RunStatus.FAILED, 0):
            print(f"tried again by hand: {counts.by_status[RunStatus.FAILED]} of {experiment_id}", flush=True)
            client.apply_to_experiment(experiment_id, RunAction.RETRY)
            return False
        if not counts.done():
            return False
    return True


def _report_and_judge(
    services: Services, database: Database, rampage: Rampage, acknowledged: list[str], seconds: float, folder: Path
) -> None:
    runs = [run for experiment in acknowledged for run in services.runs.page(experiment_id=experiment)]
    with database.reading() as connection:
        outcomes = Counter(connection.execute(sa.select(attempts.c.outcome)).scalars())
        recorded = Counter(connection.execute(sa.select(results.c.run_id)).scalars())
        succeeded = sa.select(events.c.run_id).where(events.c.to_status == RunStatus.SUCCEEDED)
        ends = Counter(connection.execute(succeeded).scalars())
    lost = [run.id for run in runs if run.status is not RunStatus.SUCCEEDED or recorded[run.id] != 1]
    doubled = [run.id for run in runs if recorded[run.id] > 1 or ends[run.id] > 1]
    courses = undisturbed_courses(runs, folder / "undisturbed", folder / "data" / "datasets")
    unequal = [
        run.id
        for run in runs
        if run.result is None or course_of(services.runs.points(run.id), run.result) != courses[run.id]
    ]
    resumed = sum(run.result is not None and run.result.resumed_from_step > 0 for run in runs)
    print(f"\n{len(runs)} runs, kills for {MINUTES:g} min, all ended after {seconds / 60:.1f} min; seed {SEED}")
    print(f"kills     {sum(rampage.kills.values())}: {_listed(rampage.kills)}")
    print(f"starts    {rampage.starts} of the service by its operator")
    print(f"attempts  {sum(outcomes.values())}: {_listed(outcomes)}; {resumed} results of a resumed training")
    print(f"lost      {len(lost)}\ndoubled   {len(doubled)}\nunequal   {len(unequal)}", flush=True)
    assert (lost, doubled, unequal) == ([], [], [])
    assert len(runs) == 6 * EXPERIMENTS
    assert len(services.experiments.page(limit=100)) == EXPERIMENTS
    assert maintenance.faults(database) == ()


def _listed(counted: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(counted.items()))
