"""Growth: what follows from ended runs is queued exactly once, whoever follows, on SQLite and PostgreSQL."""

import hashlib
import json
import math
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from orchestrator.jobs import AttemptOutcome, Lease, LeasePolicy, RunAction, RunStatus
from orchestrator.kinds.comparison import ComparisonSpec, Sequential
from orchestrator.kinds.experiment import PlannedRun
from orchestrator.kinds.scaling import ScalingSpec
from orchestrator.kinds.tuning import Tuning
from orchestrator.records import Conclusion, RunRecord, SeedsStatus
from orchestrator.services.follow_ups import FollowUps
from orchestrator.store.outgoing.exports import ExportOutbox
from orchestrator.store.queue import growth
from orchestrator.store.queue.queue import Queue
from orchestrator.store.tables import OutboxKind, experiments, runs
from tests.architecture.tree import REPOSITORY
from tests.contract.conftest import Store, open_store
from tests.contract.queue.test_races import ROUNDS, together
from tests.factories.scaling import scaling_spec
from tests.factories.services import make_services
from tests.factories.stores import comparison_spec, result, sqlite_database

RATES = (1e-3, 2e-3, 4e-3)


def tuned(trials: int = 3, optimizers: tuple[str, ...] = ("adamw",), **tuning: Any) -> ComparisonSpec:
    """Tuned by a line search from 2e-3 on, whose first three rates are `RATES`."""
    fields = {"seeds": (0,), "trials": trials} | tuning
    return comparison_spec(optimizers=optimizers, learning_rates=(2e-3,), seeds=(1, 2), tuning=Tuning(**fields))


def scaled() -> ScalingSpec:
    """Return a scaling experiment of one candidate, tuned by three trials at each of three sizes."""
    candidate = {"optimizer": "adamw", "learning_rates": [2e-3]}
    return scaling_spec(candidates=[candidate], tuning={"seeds": [0], "trials": 3})


def loss(lease: Lease) -> float:
    """Lowest at 2e-3, and as much higher at half of it as at twice."""
    return 2.3 + 0.1 * abs(math.log2(lease.spec.optimizer.lr / 2e-3))


def finish(store: Store, lease: Lease) -> None:
    store.attempts.finish(lease.run_id, lease.attempt, lease.token, result(final_val_loss=loss(lease)))


def finish_all(store: Store, count: int) -> None:
    for lease in store.start_next(count):
        finish(store, lease)


def grid_of(records: tuple[RunRecord, ...]) -> list[tuple[str, float, int]]:
    return [(run.candidate, run.lr, run.seed) for run in records]


def cells_of(records: tuple[RunRecord, ...]) -> list[tuple[str, float, int]]:
    return [(run.model, run.lr, run.seed) for run in records]


def test_a_tuned_comparison_begins_with_trials_and_goes_on_with_the_settings_found(store: Store) -> None:
    experiment = store.experiments.submit(tuned(optimizers=("adamw", "adapm"))).experiment
    assert (experiment.counts.total, experiment.counts.growing) == (6, True)
    for lease in store.start_next(6):
        store.follow()
        assert store.experiments.get(experiment.id).counts.growing
        finish(store, lease)
    store.follow()
    grown = store.experiments.get(experiment.id)
    assert (grown.counts.total, grown.counts.growing, grown.counts.done()) == (10, False, False)
    second = store.runs.page(experiment_id=experiment.id)[6:]
    assert grid_of(second) == [(name, 2e-3, seed) for name in ("adamw", "adapm") for seed in (1, 2)]
    assert [run.position for run in second] == [6, 7, 8, 9]
    assert [run.status for run in second] == [RunStatus.QUEUED] * 4
    finish_all(store, 4)
    ended = store.experiments.get(experiment.id)
    assert ended.counts.done()
    assert ended.ended_at is not None


def test_a_trial_follows_from_those_before_it_and_the_planned_figures_never_fall(store: Store) -> None:
    experiment = store.experiments.submit(tuned(trials=5)).experiment
    planned, shares, totals = {experiment.runs_planned()}, [0.0], {experiment.progress.steps_total}
    while leases := store.start_next(9):
        for lease in leases:
            finish(store, lease)
            now = store.experiments.get(experiment.id)
            planned.add(now.runs_planned())
            totals.add(now.progress.steps_total)
            shares.append(now.progress.steps_done / now.progress.steps_total)
    records = store.runs.page(experiment_id=experiment.id)
    assert [run.seed for run in records] == [0, 0, 0, 0, 0, 1, 2]
    assert len({run.lr for run in records[:5]}) == 5
    assert (planned, totals) == ({7}, {70})
    assert shares == sorted(shares) and shares[-1] == 1


def test_whoever_follows_an_experiment_is_told_that_nothing_follows(store: Store) -> None:
    """No trial gave a result. The end of the last one came before it was known that the experiment is over."""
    experiment = store.experiments.submit(tuned()).experiment
    for run in store.runs.page(experiment_id=experiment.id):
        store.runs.apply(run.id, RunAction.CANCEL)
    assert not store.experiments.get(experiment.id).counts.done()
    earlier_entries, version = ExportOutbox(store.database).due(), store.monitor.version()
    store.follow()
    assert store.experiments.get(experiment.id).counts.done()
    assert store.monitor.version() > version
    (entry,) = ExportOutbox(store.database).due()[len(earlier_entries) :]
    assert (entry.kind, entry.experiment_id) == (OutboxKind.EXPERIMENT_SUBMITTED, experiment.id)


def test_of_two_that_follow_the_same_news_exactly_one_adds_runs(store: Store) -> None:
    for _ in range(ROUNDS):
        experiment = store.experiments.submit(tuned()).experiment
        finish_all(store, 3)
        together(store.follow, store.follow)
        assert grid_of(store.runs.page(experiment_id=experiment.id))[3:] == [("adamw", 2e-3, 1), ("adamw", 2e-3, 2)]
        store.experiments.apply(experiment.id, RunAction.CANCEL)


def test_whoever_comes_late_with_old_news_adds_nothing(store: Store) -> None:
    """Meanwhile another one followed it, and as many runs have ended again: their news is not lost either."""
    spec = tuned(trials=5)
    experiment = store.experiments.submit(spec).experiment
    first, second, third = store.start_next(3)
    finish(store, first)
    finish(store, second)
    store.follow()
    finish(store, third)
    with store.database.reading() as connection:
        (old,) = growth.read_news(connection)
    finish_all(store, 1)
    with store.database.writing() as connection:
        batch = (spec.planned_run("adamw", seed=0, setting={"lr": 3e-3}),)
        assert not growth.add_runs(connection, old, spec, batch, store.database.read_clock(connection), goes_on=True)
    store.follow()
    assert [run.seed for run in store.runs.page(experiment_id=experiment.id)] == [0] * 5


def test_a_run_that_ends_while_its_experiment_is_followed_is_not_forgotten(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = store.experiments.submit(tuned()).experiment
    *ended, last = store.start_next(3)
    for lease in ended:
        finish(store, lease)
    follow_up_runs = ComparisonSpec.follow_up_runs

    def end_meanwhile(spec: ComparisonSpec, runs: Any) -> tuple[PlannedRun, ...]:
        finish(store, last)
        return follow_up_runs(spec, runs)

    with monkeypatch.context() as patch:
        patch.setattr(ComparisonSpec, "follow_up_runs", end_meanwhile)
        store.follow()
    assert store.experiments.get(experiment.id).counts.total == 3
    store.follow()
    assert store.experiments.get(experiment.id).counts.total == 5


def test_what_goes_wrong_with_one_experiment_stops_no_other_and_is_tried_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = store.experiments.submit(tuned(trials=4)).experiment.id
    whole = store.experiments.submit(tuned()).experiment.id
    leases = store.start_next(6)
    for lease in leases[:2] + leases[3:]:
        finish(store, lease)
    follow_ups, tries = FollowUps(store.database), []
    follow_up_runs = ComparisonSpec.follow_up_runs

    def fail_once(spec: ComparisonSpec, runs: Any) -> tuple[PlannedRun, ...]:
        if spec.tuning is not None and spec.tuning.trials == 4:
            tries.append(len(runs))
            if len(tries) == 1:
                raise ZeroDivisionError
        return follow_up_runs(spec, runs)

    monkeypatch.setattr(ComparisonSpec, "follow_up_runs", fail_once)
    for _ in range(2):
        follow_ups.follow()
    assert [store.experiments.get(experiment_id).counts.total for experiment_id in (broken, whole)] == [3, 5]
    assert len(tries) == 1, "without news it would go wrong again"
    finish(store, leases[2])
    follow_ups.follow()
    assert store.experiments.get(broken).counts.total == 4


def test_a_cancel_that_meets_what_follows_leaves_no_run_waiting(store: Store) -> None:
    """Whoever comes first: the judged runs were never queued, or they are cancelled with the rest."""
    for _ in range(ROUNDS):
        experiment = store.experiments.submit(tuned()).experiment
        finish_all(store, 3)
        together(store.follow, partial(store.experiments.apply, experiment.id, RunAction.CANCEL))
        store.follow()
        counts = store.experiments.get(experiment.id).counts
        assert not counts.growing
        assert RunStatus.QUEUED not in counts.by_status


def test_a_pause_that_meets_what_follows_leaves_no_run_waiting_to_start(store: Store) -> None:
    for _ in range(ROUNDS):
        experiment = store.experiments.submit(tuned()).experiment
        finish_all(store, 3)
        together(store.follow, partial(store.experiments.apply, experiment.id, RunAction.PAUSE))
        assert store.experiments.get(experiment.id).counts.by_status == {RunStatus.SUCCEEDED: 3, RunStatus.PAUSED: 2}


KILLED = """
import os, signal, sys
from orchestrator.services.follow_ups import FollowUps
from orchestrator.store.database import Database
from orchestrator.store.queue import growth

growth.add_runs = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
FollowUps(Database(sys.argv[1])).follow()
"""
FINISHER = """
import sys
from orchestrator.jobs import LeasePolicy
from orchestrator.store.database import Database
from orchestrator.store.queue.queue import Queue
from tests.factories.services import make_services
from tests.factories.stores import claim, result

database = Database(sys.argv[1])
attempts, queue = make_services(database).attempts, Queue(database, LeasePolicy())
print("ready", flush=True)
sys.stdin.readline()
while leases := claim(queue, cpus=1, limit=1):
    (lease,) = leases
    attempts.hello(lease.run_id, lease.attempt, lease.token)
    attempts.finish(lease.run_id, lease.attempt, lease.token, result(final_val_loss=LOSS))
    print(lease.run_id, flush=True)
"""


def test_one_that_is_killed_between_reading_and_writing_has_added_nothing_and_the_news_remains(tmp_path: Path) -> None:
    with sqlite_database(tmp_path) as database:
        store = open_store(database)
        experiment = store.experiments.submit(tuned()).experiment
        finish_all(store, 3)
        (file,) = tmp_path.glob("*.sqlite3")
        killed = subprocess.run([sys.executable, "-c", KILLED, f"sqlite:///{file}"], cwd=REPOSITORY, check=False)
        assert killed.returncode == -signal.SIGKILL
        assert store.experiments.get(experiment.id).counts.total == 3
        store.follow()
        assert store.experiments.get(experiment.id).counts.total == 5


def test_processes_that_are_killed_while_they_end_runs_lose_and_double_nothing(tmp_path: Path) -> None:
    """Two processes end and follow the runs of tuned experiments, one of them dies by kill -9; the other one ends
    all."""
    with sqlite_database(tmp_path) as database:
        services = make_services(database)
        ids = [services.experiments.submit(tuned()).experiment.id for _ in range(8)]
        law = services.experiments.submit(scaled()).experiment.id
        (file,) = tmp_path.glob("*.sqlite3")
        finisher = FINISHER.replace("LOSS", "2.3 + abs(lease.spec.optimizer.lr - 2e-3)")
        command = [sys.executable, "-c", finisher, f"sqlite:///{file}"]
        start = partial(subprocess.Popen, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY)
        with start(command) as doomed, start(command) as survivor:
            for process in (doomed, survivor):
                assert process.stdout is not None and process.stdin is not None
                assert process.stdout.readline() == "ready\n"
                process.stdin.write("go\n")
                process.stdin.flush()
            assert doomed.stdout is not None
            for _ in range(7):
                doomed.stdout.readline()
            doomed.kill()
            survivor.communicate()
        Queue(database, LeasePolicy()).interrupt_all()
        with start(command) as last:
            last.communicate("go\n")
        for experiment in map(services.experiments.get, ids):
            assert experiment.counts.by_status == {RunStatus.SUCCEEDED: 5}
            assert experiment.counts.done()
            judged = services.runs.page(experiment_id=experiment.id)[3:]
            assert [run.seed for run in judged] == [1, 2]
            assert len({run.lr for run in judged}) == 1
        assert services.experiments.get(law).counts.by_status == {RunStatus.SUCCEEDED: 3 * (3 + 2)}
        assert services.experiments.get(law).counts.done()
        assert sorted((run.model, run.seed) for run in services.runs.page(experiment_id=law)[9:]) == [
            (model, seed) for model in ("gpt2-micro", "gpt2-nano", "gpt2-tiny") for seed in (1, 2)
        ]


def test_a_tuned_scaling_experiment_goes_on_cell_by_cell(store: Store) -> None:
    """A cell waits for no other one."""
    experiment = store.experiments.submit(scaled()).experiment
    assert experiment.counts.growing
    assert experiment.runs_planned() == 15
    leases = store.start_next(9)
    assert len(leases) == 9
    for lease in (*leases[:3], *leases[:3]):
        finish(store, lease)
    store.follow()
    cells = cells_of(store.runs.page(experiment_id=experiment.id))[len(leases) :]
    nano = [("gpt2-nano", 2e-3, 1), ("gpt2-nano", 2e-3, 2)]
    assert cells == nano
    assert store.experiments.get(experiment.id).counts.growing
    while next_leases := (*leases[3:], *store.start_next(9)):
        leases = leases[:3]
        for lease in next_leases:
            finish(store, lease)
    ended = store.experiments.get(experiment.id).counts
    assert ended.done() and ended.total == 15


def test_a_cancelled_tuning_that_is_retried_goes_on(store: Store) -> None:
    experiment = store.experiments.submit(tuned()).experiment
    finish_all(store, 1)
    store.experiments.apply(experiment.id, RunAction.CANCEL)
    assert store.experiments.get(experiment.id).counts.done()
    store.experiments.apply(experiment.id, RunAction.RETRY)
    assert store.experiments.get(experiment.id).counts.growing
    finish_all(store, 2)
    store.follow()
    assert grid_of(store.runs.page(experiment_id=experiment.id))[3:] == [("adamw", 2e-3, 1), ("adamw", 2e-3, 2)]
    store.experiments.apply(experiment.id, RunAction.CANCEL)
    store.experiments.apply(experiment.id, RunAction.RETRY)
    finish_all(store, 2)
    store.follow()
    ended = store.experiments.get(experiment.id).counts
    assert (ended.total, ended.done()) == (5, True)


def test_what_follows_in_a_paused_experiment_waits_for_its_resume(store: Store) -> None:
    """The last trial ends although it was asked to pause: what is done is done, and nothing new begins."""
    experiment = store.experiments.submit(tuned()).experiment
    leases = store.start_next(3)
    store.experiments.apply(experiment.id, RunAction.PAUSE)
    for lease in leases:
        finish(store, lease)
    store.follow()
    second = store.runs.page(experiment_id=experiment.id)[3:]
    assert grid_of(second) == [("adamw", 2e-3, 1), ("adamw", 2e-3, 2)]
    assert [(run.status, run.reason) for run in second] == [(RunStatus.PAUSED, "the experiment is paused")] * 2
    assert store.runs.events(second[0].id)[0].to_status is RunStatus.PAUSED
    assert store.claim(cpus=2, gpus=0, limit=2) == ()
    store.experiments.apply(experiment.id, RunAction.RESUME)
    finish_all(store, 2)
    assert store.experiments.get(experiment.id).counts.done()


@pytest.mark.parametrize("action", [RunAction.RESUME, RunAction.CANCEL])
def test_a_pause_is_forgotten_by_what_ends_it(store: Store, action: RunAction) -> None:
    experiment = store.experiments.submit(tuned()).experiment
    store.experiments.apply(experiment.id, RunAction.PAUSE)
    store.experiments.apply(experiment.id, action)
    if action is RunAction.CANCEL:
        store.experiments.apply(experiment.id, RunAction.RETRY)
    finish_all(store, 3)
    assert len(store.start_next(2)) == 2


def test_retrying_one_run_of_a_cancelled_tuning_revives_its_candidate_alone(store: Store) -> None:
    experiment = store.experiments.submit(tuned(optimizers=("adamw", "adapm"))).experiment
    for lease in store.start_next(6):
        if lease.spec.optimizer.lr != 4e-3:
            finish(store, lease)
    store.experiments.apply(experiment.id, RunAction.CANCEL)
    store.database.clock_offset_seconds += 100
    for run_id, attempt in store.queue.overdue_cancels():
        store.queue.release(run_id, attempt, AttemptOutcome.LOST, "ended")
    store.follow()
    assert store.experiments.get(experiment.id).counts.done()
    (retried,) = (
        run for run in store.runs.page(experiment_id=experiment.id) if (run.candidate, run.lr) == ("adapm", 4e-3)
    )
    store.runs.apply(retried.id, RunAction.RETRY)
    assert store.experiments.get(experiment.id).counts.growing
    finish_all(store, 9)
    store.follow()
    grown = store.experiments.get(experiment.id).counts
    assert (grown.total, grown.growing) == (8, False), "AdamW was cancelled and stays so"
    assert grid_of(store.runs.page(experiment_id=experiment.id))[6:] == [("adapm", 2e-3, 1), ("adapm", 2e-3, 2)]
    finish_all(store, 2)
    assert store.experiments.get(experiment.id).counts.done()


def write_as_earlier_version(store: Store, id: str, change: Callable[[dict[str, Any]], object]) -> None:
    """Give an experiment a specification as an earlier version stored it."""
    written = store.experiments.get(id).spec.model_dump(mode="json")
    change(written)
    text = json.dumps(written, sort_keys=True, separators=(",", ":"))
    with store.database.writing() as connection:
        values = {"spec": text, "spec_hash": hashlib.sha256(text.encode()).hexdigest()}
        connection.execute(sa.update(experiments).where(experiments.c.id == id).values(**values))


def grid_of_earlier_version(spec: dict[str, Any]) -> None:
    spec["tuning"] = {"seeds": [0], "extend_grid": 6}
    spec["unequal_grids"] = False


def test_an_experiment_of_an_earlier_version_in_the_middle_of_its_grid_goes_on_and_ends(store: Store) -> None:
    spec = comparison_spec(learning_rates=RATES, seeds=(1, 2), tuning=Tuning(seeds=(0,)))
    experiment = store.experiments.submit(spec, "once").experiment
    leases = store.start_next(3)
    finish(store, leases[0])
    write_as_earlier_version(store, experiment.id, grid_of_earlier_version)
    read = store.experiments.get(experiment.id)
    written = json.dumps(read.spec.model_dump(mode="json"), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert read.spec_hash == hashlib.sha256(written.encode()).hexdigest(), "of what others read and check"
    assert not store.experiments.submit(read.spec, "once").created
    for lease in leases[1:]:
        finish(store, lease)
    while next_leases := store.start_next(9):
        for lease in next_leases:
            finish(store, lease)
    ended = store.experiments.get(experiment.id)
    assert (ended.counts.done(), ended.counts.total) == (True, read.runs_planned())
    assert [run.seed for run in store.runs.page(experiment_id=experiment.id)][-3:] == [0, 1, 2]


def test_an_experiment_of_an_earlier_version_that_ended_keeps_its_verdict_at_the_rate_it_was_judged_at(
    store: Store,
) -> None:
    """Which today's search would not choose."""
    names = ("adamw", "adapm")
    spec = comparison_spec(
        optimizers=names, learning_rates=RATES, seeds=range(1, 5), tuning=Tuning(method="grid", seeds=(0,))
    )
    experiment = store.experiments.submit(spec).experiment
    finish_all(store, 6)
    store.follow()
    for lease in store.start_next(8):
        finish_at(store, lease, -0.25)
    before = store.analysis.compare(experiment.id)
    write_as_earlier_version(store, experiment.id, grid_of_earlier_version)
    with store.database.writing() as connection:
        connection.execute(sa.update(runs).where(runs.c.seed > 0).values(lr=2.5e-3, version=runs.c.version + 1))
    assert store.follow() == 0
    after = store.analysis.compare(experiment.id)
    assert [row.conclusion for row in after.rows] == [Conclusion.BETTER, Conclusion.BASELINE]
    assert [row.difference for row in after.rows] == [row.difference for row in before.rows]
    assert {row.best_lr for row in after.rows} == {2.5e-3}
    assert after.complete


def looked_at(optimizers: tuple[str, ...] = ("adamw", "adapm"), tuning: Tuning | None = None) -> ComparisonSpec:
    """Return a sequential comparison at one rate each, or at a tuned one, over up to six seeds."""
    spec = comparison_spec(optimizers=optimizers, learning_rates=(2e-3,), seeds=range(1, 7), tuning=tuning)
    return spec.model_copy(update={"sequential": Sequential()})


NOISE = (0.0, 0.0, 0.04, -0.03, 0.05, -0.04, 0.03)
"""The noise by seed."""


def finish_at(store: Store, lease: Lease, gap: float = 0.0) -> None:
    """AdaPM is off by so much, and its differences vary."""
    difference = gap + NOISE[lease.spec.seed % 7] if lease.spec.optimizer.name == "adapm" else 0.0
    store.attempts.finish(lease.run_id, lease.attempt, lease.token, result(final_val_loss=loss(lease) + difference))


def seeds_of(store: Store, id: str, name: str) -> list[int]:
    return [run.seed for run in store.runs.page(experiment_id=id) if run.candidate == name]


def test_seeds_are_added_until_a_verdict_is_there(store: Store) -> None:
    experiment = store.experiments.submit(looked_at()).experiment
    assert (experiment.counts.total, experiment.counts.growing, experiment.runs_planned()) == (6, True, 12)
    looks = 0
    while leases := store.start_next(9):
        looks += 1
        assert store.experiments.get(experiment.id).runs_planned() == 12
        for lease in leases:
            finish_at(store, lease, -0.25)
    ended = store.experiments.get(experiment.id).counts
    assert ended.done() and 6 < ended.total < 12
    assert (
        seeds_of(store, experiment.id, "adamw") == seeds_of(store, experiment.id, "adapm") == list(range(1, 3 + looks))
    )
    (row,) = (row for row in store.analysis.compare(experiment.id).rows if row.seeds_used)
    assert row.seeds_used is not None
    assert (row.seeds_used.status, row.seeds_used.seeds, row.seeds_used.looks) == (
        SeedsStatus.DECIDED,
        ended.total // 2,
        looks,
    )


def test_a_tuned_comparison_looks_at_its_judged_runs(store: Store) -> None:
    experiment = store.experiments.submit(looked_at(tuning=Tuning(seeds=(0,), trials=3))).experiment
    while leases := store.start_next(9):
        for lease in leases:
            finish_at(store, lease, -3.0)
    ended = store.experiments.get(experiment.id).counts
    assert (ended.total, ended.done()) == (2 * (3 + 3), True)
