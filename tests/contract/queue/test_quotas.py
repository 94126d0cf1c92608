"""Quotas of keys hold at every commit: runs at once and device-hours in a day, claimed by one dispatcher or by two."""

from functools import partial

import pytest
import sqlalchemy as sa

from orchestrator.jobs import AttemptOutcome, Lease
from orchestrator.keys import KeyRecord, KeyRequest
from orchestrator.store.queue.queue import Queue
from orchestrator.store.tables import attempts
from tests.contract.conftest import POLICY, Store
from tests.contract.queue.test_races import together
from tests.factories.stores import claim, comparison_spec, result
from worker.records.protocol import Heartbeat

DAY_SECONDS = 86_400


def key(store: Store, **quota: float) -> str:
    return store.keyring.create(KeyRequest.model_validate({"label": "Ada", **quota})).key.id


def record(store: Store, key_id: str) -> KeyRecord:
    return next(key_record for key_record in store.keyring.list_keys() if key_record.id == key_id)


def submit(store: Store, by: str | None, runs: int = 4, priority: int = 0) -> str:
    spec = comparison_spec(seeds=range(runs)).model_copy(update={"priority": priority})
    return store.experiments.submit(spec, by=by).experiment.id


def owners(leases: tuple[Lease, ...]) -> list[str]:
    return [lease.run_id.rpartition("-")[0] for lease in leases]


def finish(store: Store, lease: Lease, device_seconds: float = 0.0) -> None:
    store.attempts.hello(lease.run_id, lease.attempt, lease.token)
    store.attempts.finish(lease.run_id, lease.attempt, lease.token, result(device_seconds=device_seconds))


def test_a_key_that_waits_holds_nobody_up(store: Store) -> None:
    """Its runs are not runnable: those behind them start, in one claim, however many are passed over."""
    limited = submit(store, key(store, runs_at_once=1), runs=20, priority=5)
    another = submit(store, key(store, runs_at_once=3), runs=20, priority=4)
    nobodys = submit(store, None, runs=5)
    leases = store.claim(cpus=99, limit=8)
    assert owners(leases) == [limited] + [another] * 3 + [nobodys] * 4
    assert owners(store.claim(cpus=99, limit=8)) == [nobodys]


def test_a_key_without_a_quota_is_charged_and_not_held(store: Store) -> None:
    free = key(store)
    submit(store, free, runs=3)
    assert len(store.claim(cpus=99, limit=99)) == 3
    assert record(store, free).runs_at_work == 3


def test_nothing_begins_once_the_device_hours_of_a_day_are_used_up(store: Store) -> None:
    owner = key(store, device_hours_a_day=2)
    submit(store, owner, runs=4)
    first, second = store.claim(cpus=2, limit=2)
    finish(store, first, device_seconds=3_600)
    (third,) = store.claim(cpus=1, limit=1)
    store.attempts.hello(second.run_id, 1, second.token)
    store.attempts.heartbeat(second.run_id, 1, second.token, Heartbeat(step=1, device_seconds=3_600))
    assert store.claim(cpus=9, limit=9) == (), "what is at work counts, too"
    finish(store, third, device_seconds=60)  # what had begun goes on
    finish(store, second, device_seconds=3_600)
    assert record(store, owner).device_hours_used == pytest.approx(2 + 1 / 60)
    assert store.claim(cpus=9, limit=9) == ()
    store.database.clock_offset_seconds += DAY_SECONDS + 1
    assert len(store.claim(cpus=9, limit=9)) == 1


def test_lost_attempts_are_charged_too(store: Store) -> None:
    owner = key(store, device_hours_a_day=1)
    submit(store, owner, runs=1)
    lease = store.start()
    store.attempts.heartbeat(lease.run_id, 1, lease.token, Heartbeat(step=1, device_seconds=3_600))
    store.queue.release(lease.run_id, 1, AttemptOutcome.LOST, "died")
    store.pass_time(60)
    assert store.claim(cpus=9, limit=9) == ()


def test_a_quota_of_nothing_starts_nothing(store: Store) -> None:
    submit(store, key(store, runs_at_once=0))
    submit(store, key(store, device_hours_a_day=0))
    assert store.claim(cpus=9, limit=9) == ()


def test_a_revoked_key_has_its_quota_still(store: Store) -> None:
    owner = key(store, runs_at_once=1)
    submit(store, owner)
    store.keyring.revoke(owner)
    assert len(store.claim(cpus=9, limit=9)) == 1
    assert store.claim(cpus=9, limit=9) == ()


def test_a_waiting_run_says_which_quota_it_waits_for(store: Store) -> None:
    limited, nobodys = submit(store, key(store, runs_at_once=1), runs=2), submit(store, None, runs=2)
    store.claim(cpus=2, limit=2)
    held, free = (store.runs.queue_position(f"{experiment_id}-0001") for experiment_id in (limited, nobodys))
    assert held.waits_for == "waits for the quota of the key 'Ada': 1 of 1 run at work"
    assert (held.position, held.starts_in_seconds, free.waits_for) == (1, None, None)


def test_a_waiting_run_says_that_the_device_hours_are_used_up(store: Store) -> None:
    limited = submit(store, key(store, device_hours_a_day=0.5), runs=2)
    finish(store, store.claim(cpus=1, limit=1)[0], device_seconds=1_800)
    reason = "waits for the quota of the key 'Ada': 0.5 of 0.5 device-hours of 24 hours are used"
    assert store.runs.queue_position(f"{limited}-0001").waits_for == reason


def test_the_runs_of_a_repeated_submission_stay_with_the_key_that_made_them(store: Store) -> None:
    owner, stranger = key(store, runs_at_once=1), key(store)
    spec = comparison_spec()
    first = store.experiments.submit(spec, "same", by=owner)
    repeat = store.experiments.submit(spec, "same", by=stranger)
    assert (repeat.created, repeat.experiment.key_id) == (False, owner)
    assert first.experiment.id == repeat.experiment.id


def test_two_dispatchers_at_once_do_not_pass_a_quota_together(store: Store) -> None:
    submit(store, key(store, runs_at_once=3), runs=40)
    queues = [Queue(store.database, POLICY) for _ in range(4)]

    def grab(queue: Queue) -> None:
        for _ in range(5):
            claim(queue, cpus=99, limit=2)

    together(*[partial(grab, queue) for queue in queues])
    live = sa.select(sa.func.count()).select_from(attempts).where(attempts.c.ended_at.is_(None))
    with store.database.reading() as connection:
        assert connection.execute(live).scalar_one() == 3
