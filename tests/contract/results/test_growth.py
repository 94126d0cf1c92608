"""Growth: phase 2 of a tuned comparison is queued exactly once, whoever ends the last run, on SQLite and PostgreSQL."""

import math
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from orchestrator.errors import NotFoundError
from orchestrator.jobs import AttemptOutcome, Lease, LeasePolicy, RunAction, RunStatus
from orchestrator.kinds.comparison import ComparisonSpec, Sequential
from orchestrator.kinds.scaling import ScalingSpec
from orchestrator.kinds.tuning import Tuning
from orchestrator.records import RunRecord, SeedsStatus
from orchestrator.store.queue.queue import Queue
from tests.architecture.tree import REPOSITORY
from tests.contract.conftest import Store, sqlite_file
from tests.contract.queue.test_races import ROUNDS, together
from tests.factories.scaling import scaling_spec
from tests.factories.services import make_services
from tests.factories.stores import comparison_spec, result

RATES = (1e-3, 2e-3, 4e-3)


def tuned(extend_grid: int = 0, optimizers: tuple[str, ...] = ("adamw",)) -> ComparisonSpec:
    return comparison_spec(
        optimizers=optimizers, learning_rates=RATES, seeds=(1, 2), tuning=Tuning(seeds=(0,), extend_grid=extend_grid)
    )


def scaled(at: str, transfer: str | None) -> ScalingSpec:
    """One candidate at three rates, tuned at the smallest of three sizes or at each."""
    candidate = {"optimizer": "adamw", "learning_rates": RATES}
    return scaling_spec(candidates=[candidate], tuning={"seeds": [0], "extend_grid": 0, "at": at, "transfer": transfer})


def loss(lease: Lease) -> float:
    """Lowest at 2e-3, and as much higher at half of it as at twice."""
    return 2.3 + 0.1 * abs(math.log2(lease.spec.optimizer.lr / 2e-3))


def begin(store: Store, count: int) -> tuple[Lease, ...]:
    """Claim so many runs and greet for each."""
    leases = store.claim(cpus=count, gpus=0, limit=count)
    for lease in leases:
        store.attempts.hello(lease.run_id, 1, lease.token)
    return leases


def finish(store: Store, lease: Lease) -> None:
    store.attempts.finish(lease.run_id, 1, lease.token, result(final_val_loss=loss(lease)))


def grid_of(found: tuple[RunRecord, ...]) -> list[tuple[str, float, int]]:
    return [(run.candidate, run.lr, run.seed) for run in found]


def cells_of(found: tuple[RunRecord, ...]) -> list[tuple[str, float, int]]:
    return [(run.model, run.lr, run.seed) for run in found]


def test_a_tuned_comparison_begins_with_the_grid_and_goes_on_with_the_winners(store: Store) -> None:
    experiment = store.experiments.submit(tuned(optimizers=("adamw", "adapm"))).experiment
    assert (experiment.counts.total, experiment.counts.growing) == (6, True)
    for lease in begin(store, 6):
        assert not store.experiments.get(experiment.id).counts.done()
        finish(store, lease)
    grown = store.experiments.get(experiment.id)
    assert (grown.counts.total, grown.counts.growing, grown.counts.done()) == (10, False, False)
    second = store.runs.page(experiment_id=experiment.id)[6:]
    assert grid_of(second) == [(name, 2e-3, seed) for name in ("adamw", "adapm") for seed in (1, 2)]
    assert [run.position for run in second] == [6, 7, 8, 9]
    assert [run.status for run in second] == [RunStatus.QUEUED] * 4
    for lease in begin(store, 4):
        finish(store, lease)
    ended = store.experiments.get(experiment.id)
    assert ended.counts.done()
    assert ended.ended_at is not None


def test_a_candidate_does_not_wait_for_the_others(store: Store) -> None:
    experiment = store.experiments.submit(tuned(optimizers=("adamw", "adapm"))).experiment
    for lease in begin(store, 6):
        if lease.spec.optimizer.name == "adapm":
            finish(store, lease)
    found = store.runs.page(experiment_id=experiment.id)
    assert grid_of(found[6:]) == [("adapm", 2e-3, 1), ("adapm", 2e-3, 2)]
    assert store.experiments.get(experiment.id).counts.growing


def test_a_finish_that_is_repeated_adds_nothing(store: Store) -> None:
    experiment = store.experiments.submit(tuned()).experiment
    leases = begin(store, 3)
    for lease in (*leases, *leases):
        finish(store, lease)
    assert store.experiments.get(experiment.id).counts.total == 5


def test_runs_that_fail_end_their_tuning_too(store: Store) -> None:
    """Two rates are given up after three failures each; the third one wins."""
    experiment = store.experiments.submit(tuned()).experiment
    for _ in range(3):
        store.pass_time(60)
        for lease in store.claim(cpus=3, gpus=0, limit=3):
            store.attempts.hello(lease.run_id, lease.attempt, lease.token)
            if lease.spec.optimizer.lr == 4e-3:
                finish(store, lease)
            else:
                store.queue.release(lease.run_id, lease.attempt, AttemptOutcome.LOST, "gone")
    found = store.runs.page(experiment_id=experiment.id)
    assert [run.status for run in found[:3]] == [RunStatus.FAILED, RunStatus.FAILED, RunStatus.SUCCEEDED]
    assert grid_of(found[3:]) == [("adamw", 4e-3, 1), ("adamw", 4e-3, 2)]


def test_tuning_without_a_winner_ends_the_experiment(store: Store) -> None:
    experiment = store.experiments.submit(tuned()).experiment
    for run in store.runs.page(experiment_id=experiment.id):
        store.runs.apply(run.id, RunAction.CANCEL)
    assert store.experiments.get(experiment.id).counts.done()


def test_of_two_processes_that_end_the_last_two_runs_exactly_one_adds_phase_two(store: Store) -> None:
    for _ in range(ROUNDS):
        experiment = store.experiments.submit(tuned(extend_grid=0)).experiment
        first, *last = begin(store, 3)
        finish(store, first)
        assert together(*(partial(finish, store, lease) for lease in last)) == [None, None]
        assert grid_of(store.runs.page(experiment_id=experiment.id))[3:] == [("adamw", 2e-3, 1), ("adamw", 2e-3, 2)]
        store.experiments.apply(experiment.id, RunAction.CANCEL)


def test_a_cancel_that_meets_the_end_of_tuning_leaves_no_run_waiting(store: Store) -> None:
    """Whoever comes first: phase 2 was never queued, or it is cancelled with the rest."""
    for _ in range(ROUNDS):
        experiment = store.experiments.submit(tuned()).experiment
        first, second, last = begin(store, 3)
        finish(store, first)
        finish(store, second)
        together(partial(finish, store, last), partial(store.experiments.apply, experiment.id, RunAction.CANCEL))
        counts = store.experiments.get(experiment.id).counts
        assert not counts.growing
        assert RunStatus.QUEUED not in counts.by_status
        store.queue.interrupt_all()


def test_only_an_experiment_that_exists_is_cancelled(store: Store) -> None:
    with pytest.raises(NotFoundError):
        store.experiments.apply("nowhere", RunAction.CANCEL)


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
    attempts.finish(lease.run_id, lease.attempt, lease.token, result(final_val_loss=2.3 + lease.spec.optimizer.lr))
    print(lease.run_id, flush=True)
"""


def test_processes_that_are_killed_while_they_end_runs_lose_and_double_nothing(tmp_path: Path) -> None:
    """Two processes end the runs of tuned experiments, one of them dies by kill -9; the other one ends all."""
    with sqlite_file(tmp_path) as database:
        services = make_services(database)
        ids = [services.experiments.submit(tuned()).experiment.id for _ in range(8)]
        law = services.experiments.submit(scaled("smallest-size", "kept")).experiment.id
        (file,) = tmp_path.glob("*.sqlite3")
        command = [sys.executable, "-c", FINISHER, f"sqlite:///{file}"]
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
            assert grid_of(services.runs.page(experiment_id=experiment.id))[3:] == [
                ("adamw", 1e-3, 1),
                ("adamw", 1e-3, 2),
            ]
        assert services.experiments.get(law).counts.by_status == {RunStatus.SUCCEEDED: 3 + 3 * 2}
        assert services.experiments.get(law).counts.done()
        assert cells_of(services.runs.page(experiment_id=law))[3:] == [
            (model, 1e-3, seed) for model in ("gpt2-nano", "gpt2-micro", "gpt2-tiny") for seed in (1, 2)
        ]


@pytest.mark.parametrize(("at", "transfer"), [("each-size", None), ("smallest-size", "inverse-width")])
def test_a_tuned_scaling_experiment_goes_on_cell_by_cell(store: Store, at: str, transfer: str | None) -> None:
    """A cell waits for no other one; what is taken over comes with the winner, and once."""
    experiment = store.experiments.submit(scaled(at, transfer)).experiment
    assert experiment.counts.growing
    leases = begin(store, 9)
    assert len(leases) == (9 if at == "each-size" else 3)
    for lease in (*leases[:3], *leases[:3]):
        finish(store, lease)
    found = cells_of(store.runs.page(experiment_id=experiment.id))[len(leases) :]
    nano = [("gpt2-nano", 2e-3, 1), ("gpt2-nano", 2e-3, 2)]
    assert found[:2] == nano
    assert found[2:] == ([] if transfer is None else [
        (model, lr, seed) for model, lr in (("gpt2-micro", 1.2e-3), ("gpt2-tiny", 7.5e-4)) for seed in (1, 2)
    ])  # fmt: skip
    assert store.experiments.get(experiment.id).counts.growing is (at == "each-size")
    while more := (*leases[3:], *begin(store, 9)):
        leases = leases[:3]
        for lease in more:
            finish(store, lease)
    ended = store.experiments.get(experiment.id).counts
    assert ended.done() and ended.total == (15 if at == "each-size" else 9)


def test_a_cancelled_tuning_that_is_retried_goes_on_to_phase_two(store: Store) -> None:
    experiment = store.experiments.submit(tuned()).experiment
    (first, *_) = begin(store, 1)
    finish(store, first)
    store.experiments.apply(experiment.id, RunAction.CANCEL)
    assert store.experiments.get(experiment.id).counts.done()
    store.experiments.apply(experiment.id, RunAction.RETRY)
    assert store.experiments.get(experiment.id).counts.growing
    for lease in begin(store, 2):
        finish(store, lease)
    assert grid_of(store.runs.page(experiment_id=experiment.id))[3:] == [("adamw", 2e-3, 1), ("adamw", 2e-3, 2)]
    store.experiments.apply(experiment.id, RunAction.CANCEL)
    store.experiments.apply(experiment.id, RunAction.RETRY)
    assert not store.experiments.get(experiment.id).counts.growing, "phase 2 is there, and is retried itself"


def test_what_follows_in_a_paused_experiment_waits_for_its_resume(store: Store) -> None:
    """The last run of phase 1 ends although it was asked to pause: what is done is done, and nothing new begins."""
    experiment = store.experiments.submit(tuned()).experiment
    leases = begin(store, 3)
    store.experiments.apply(experiment.id, RunAction.PAUSE)
    for lease in leases:
        finish(store, lease)
    second = store.runs.page(experiment_id=experiment.id)[3:]
    assert grid_of(second) == [("adamw", 2e-3, 1), ("adamw", 2e-3, 2)]
    assert [(run.status, run.reason) for run in second] == [(RunStatus.PAUSED, "the experiment is paused")] * 2
    assert store.runs.events(second[0].id)[0].to_status is RunStatus.PAUSED
    assert store.claim(cpus=2, gpus=0, limit=2) == ()
    store.experiments.apply(experiment.id, RunAction.RESUME)
    for lease in begin(store, 2):
        finish(store, lease)
    assert store.experiments.get(experiment.id).counts.done()


@pytest.mark.parametrize("action", [RunAction.RESUME, RunAction.CANCEL])
def test_a_pause_is_forgotten_by_what_ends_it(store: Store, action: RunAction) -> None:
    experiment = store.experiments.submit(tuned()).experiment
    store.experiments.apply(experiment.id, RunAction.PAUSE)
    store.experiments.apply(experiment.id, action)
    if action is RunAction.CANCEL:
        store.experiments.apply(experiment.id, RunAction.RETRY)
    for lease in begin(store, 3):
        finish(store, lease)
    assert len(begin(store, 2)) == 2


def test_a_pause_that_meets_the_end_of_tuning_leaves_no_run_waiting_to_start(store: Store) -> None:
    for _ in range(ROUNDS):
        experiment = store.experiments.submit(tuned()).experiment
        first, second, last = begin(store, 3)
        finish(store, first)
        finish(store, second)
        together(partial(finish, store, last), partial(store.experiments.apply, experiment.id, RunAction.PAUSE))
        assert store.experiments.get(experiment.id).counts.by_status == {RunStatus.SUCCEEDED: 3, RunStatus.PAUSED: 2}


def test_retrying_one_run_of_a_cancelled_tuning_revives_its_candidate_alone(store: Store) -> None:
    experiment = store.experiments.submit(tuned(optimizers=("adamw", "adapm"))).experiment
    for lease in begin(store, 6):
        if lease.spec.optimizer.lr != 4e-3:
            finish(store, lease)
    store.experiments.apply(experiment.id, RunAction.CANCEL)
    store.database.clock_offset_seconds += 100
    for run_id, attempt in store.queue.overdue_cancels():
        store.queue.release(run_id, attempt, AttemptOutcome.LOST, "ended")
    assert store.experiments.get(experiment.id).counts.done()
    (retried,) = (
        run for run in store.runs.page(experiment_id=experiment.id) if (run.candidate, run.lr) == ("adapm", 4e-3)
    )
    store.runs.apply(retried.id, RunAction.RETRY)
    assert store.experiments.get(experiment.id).counts.growing
    (lease,) = store.claim(cpus=9, gpus=0, limit=9)
    store.attempts.hello(lease.run_id, 2, lease.token)
    store.attempts.finish(lease.run_id, 2, lease.token, result(final_val_loss=loss(lease)))
    grown = store.experiments.get(experiment.id).counts
    assert (grown.total, grown.growing) == (8, False), "AdamW was cancelled and stays so"
    assert grid_of(store.runs.page(experiment_id=experiment.id))[6:] == [("adapm", 2e-3, 1), ("adapm", 2e-3, 2)]
    for second in begin(store, 2):
        finish(store, second)
    assert store.experiments.get(experiment.id).counts.done()


def looked_at(optimizers: tuple[str, ...] = ("adamw", "adapm"), tuning: Tuning | None = None) -> ComparisonSpec:
    """At one rate each, or at the best of a grid, over up to six seeds."""
    rates = RATES if tuning else (2e-3,)
    spec = comparison_spec(optimizers=optimizers, learning_rates=rates, seeds=range(1, 7), tuning=tuning)
    return spec.model_copy(update={"sequential": Sequential()})


NOISE = (0.0, 0.0, 0.04, -0.03, 0.05, -0.04, 0.03)
"""By seed."""


def finish_at(store: Store, lease: Lease, gap: float = 0.0) -> None:
    """AdaPM is off by so much, and its differences vary."""
    off = gap + NOISE[lease.spec.seed % 7] if lease.spec.optimizer.name == "adapm" else 0.0
    store.attempts.finish(lease.run_id, lease.attempt, lease.token, result(final_val_loss=loss(lease) + off))


def seeds_of(store: Store, id: str, name: str) -> list[int]:
    return [run.seed for run in store.runs.page(experiment_id=id) if run.candidate == name]


def test_seeds_are_added_until_a_verdict_is_there(store: Store) -> None:
    experiment = store.experiments.submit(looked_at()).experiment
    assert (experiment.counts.total, experiment.counts.growing) == (6, True)
    looks = 0
    while leases := begin(store, 9):
        looks += 1
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


def test_a_look_waits_for_all_runs_and_a_repeated_finish_adds_nothing(store: Store) -> None:
    experiment = store.experiments.submit(looked_at()).experiment
    leases = begin(store, 9)
    for lease in leases:
        assert store.experiments.get(experiment.id).counts.total == 6
        finish_at(store, lease, -0.25)
    assert store.experiments.get(experiment.id).counts.total == 8
    for lease in leases:
        finish_at(store, lease, -0.25)
    assert store.experiments.get(experiment.id).counts.total == 8


def test_a_tuned_comparison_looks_at_its_phase_two(store: Store) -> None:
    spec = looked_at(tuning=Tuning(seeds=(0,), extend_grid=0))
    experiment = store.experiments.submit(spec).experiment
    while leases := begin(store, 9):
        for lease in leases:
            finish_at(store, lease, -3.0)
    ended = store.experiments.get(experiment.id).counts
    assert (ended.total, ended.done()) == (2 * (3 + 3), True)


def test_of_two_processes_that_end_the_last_two_runs_exactly_one_looks(store: Store) -> None:
    for _ in range(ROUNDS):
        experiment = store.experiments.submit(looked_at()).experiment
        *first, one, other = begin(store, 6)
        for lease in first:
            finish_at(store, lease, -0.25)
        assert together(*(partial(finish_at, store, lease, -0.25) for lease in (one, other))) == [None, None]
        assert seeds_of(store, experiment.id, "adapm") == seeds_of(store, experiment.id, "adamw") == [1, 2, 3, 4]
        store.experiments.apply(experiment.id, RunAction.CANCEL)


def test_a_cancelled_comparison_that_is_retried_looks_again(store: Store) -> None:
    experiment = store.experiments.submit(looked_at()).experiment
    for lease in begin(store, 5):
        finish_at(store, lease, -0.25)
    store.experiments.apply(experiment.id, RunAction.CANCEL)
    assert store.experiments.get(experiment.id).counts.done()
    store.experiments.apply(experiment.id, RunAction.RETRY)
    for lease in begin(store, 5):
        finish_at(store, lease, -0.25)
    assert store.experiments.get(experiment.id).counts.total == 8


SEQUENTIAL_FINISHER = FINISHER.replace(
    "2.3 + lease.spec.optimizer.lr", "2.3 + (lease.spec.optimizer.name == 'adapm') * (lease.spec.seed % 3 / 20 - 0.4)"
)


def test_processes_that_are_killed_between_looks_lose_and_double_nothing(tmp_path: Path) -> None:
    """What a kill -9 leaves is what another process goes on from: the same seeds as without one."""
    found = []
    for kills in (False, True):
        folder = tmp_path / str(kills)
        folder.mkdir()
        with sqlite_file(folder) as database:
            services = make_services(database)
            ids = [services.experiments.submit(looked_at()).experiment.id for _ in range(3)]
            (file,) = folder.glob("*.sqlite3")
            command = [sys.executable, "-c", SEQUENTIAL_FINISHER, f"sqlite:///{file}"]
            start = partial(
                subprocess.Popen,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                cwd=REPOSITORY,
            )
            if kills:
                with start(command) as doomed:
                    assert doomed.stdout is not None and doomed.stdin is not None
                    doomed.stdin.write("go\n")
                    doomed.stdin.flush()
                    for _ in range(20):  # "ready", and the ends of 19 runs of 18 first ones
                        doomed.stdout.readline()
                    doomed.kill()
                Queue(database, LeasePolicy()).interrupt_all()
            with start(command) as last:
                last.communicate("go\n")
            counts = [services.experiments.get(id).counts for id in ids]
            assert all(each.done() for each in counts)
            found.append(
                [sorted((run.candidate, run.seed) for run in services.runs.page(experiment_id=id)) for id in ids]
            )
    assert found[0] == found[1]
    assert all(6 < len(runs) < 12 and len(set(runs)) == len(runs) for runs in found[0])
