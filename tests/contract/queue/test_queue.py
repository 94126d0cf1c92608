"""The queue's contract, on SQLite and PostgreSQL: states, fencing, attempts, cancels, what survives what."""

from pathlib import Path

import pytest

from orchestrator.errors import ConflictError, IdempotencyError, LeaseLostError
from orchestrator.jobs import AttemptOutcome, Lease, RunAction, RunStatus
from orchestrator.store.leadership import Leadership
from orchestrator.store.outgoing.exports import ExportOutbox
from orchestrator.store.outgoing.messages import Messages
from orchestrator.store.outgoing.webhooks import Webhooks
from orchestrator.store.queue.capacity import FreeCapacity, Node, NodeId
from orchestrator.store.queue.queue import MOST_NODES_LOST
from orchestrator.store.tables import attempts
from orchestrator.webhooks.policy import WebhookPolicy
from orchestrator.webhooks.records import WebhookRequest
from tests.contract.conftest import POLICY, Store
from tests.factories.stores import batch, comparison_spec, result
from worker.records.protocol import CheckpointNotice, Command, Failure, FailureKind, Heartbeat, Stopped


def claim(store: Store) -> Lease:
    """Claim the head of the queue."""
    (lease,) = store.claim(cpus=64, gpus=8, limit=1)
    return lease


def status(store: Store, run_id: str) -> RunStatus:
    return store.runs.get(run_id).status


def failure(kind: FailureKind = FailureKind.INFRASTRUCTURE, device_seconds: float = 1.0) -> Failure:
    return Failure(kind=kind, message="the disk is full", device_seconds=device_seconds)


def test_the_same_key_with_another_specification_is_refused(store: Store) -> None:
    store.experiments.submit(comparison_spec(), "key")
    with pytest.raises(IdempotencyError, match="'key' belongs to experiment"):
        store.experiments.submit(comparison_spec(name="another"), "key")
    assert len(store.experiments.page()) == 1


def test_a_claim_stops_at_the_first_run_that_does_not_fit(store: Store) -> None:
    """A large run at the head is waited for: small ones behind it must not starve it."""
    small, large, followers = store.submit(seeds=(1,)), store.submit(seeds=(1,), cpus=4), store.submit(seeds=(1,))
    assert [lease.run_id for lease in store.claim(cpus=3, gpus=0, limit=10)] == small
    assert store.claim(cpus=3, gpus=0, limit=10) == ()
    assert [lease.run_id for lease in store.claim(cpus=5, gpus=0, limit=10)] == large + followers


def nodes(*sizes: tuple[int, int]) -> list[Node]:
    """A cluster of nodes with so many (CPUs, GPUs)."""
    return [Node(id=NodeId(f"n{number}"), cpus=cpus, gpus=gpus) for number, (cpus, gpus) in enumerate(sizes)]


def mark(store: Store, *sizes: tuple[int, int]) -> int:
    """Mark the waiting runs for such a cluster; returns how many it can never hold."""
    store.queue.mark_unschedulable(nodes(*sizes))
    return sum((run.reason or "").startswith("needs") for run in store.runs.page())


def test_a_run_that_the_cluster_can_never_hold_says_so_and_blocks_nobody(store: Store) -> None:
    """Two nodes with one GPU each hold no run of two, however many there are."""
    (large,), (small,) = store.submit(seeds=(1,), gpus=2), store.submit(seeds=(1,))
    assert mark(store, (8, 1), (8, 1), (16, 0)) == 1
    reason = "needs 2 CPUs and 2 GPUs on one node; the largest node of the cluster has 8 CPUs and 1 GPU or 16 CPUs and"
    assert store.runs.get(large).reason == f"{reason} 0 GPUs"
    assert [lease.run_id for lease in store.claim(cpus=8, gpus=1, limit=10)] == [small]
    assert mark(store, (8, 2)) == 0
    assert store.runs.get(large).reason is None
    assert [lease.run_id for lease in store.claim(cpus=8, gpus=2, limit=10)] == [large]


def test_what_the_dispatcher_sees_of_the_cluster_is_known_while_it_leads(store: Store) -> None:
    """To other processes too, which hold what they check against it."""
    monitor = store.monitor
    store.queue.mark_unschedulable(nodes((8, 1)))
    assert monitor.largest_nodes() == (), "nobody leads"
    leadership = Leadership(store.database, "here")
    leadership.hold()
    assert monitor.largest_nodes() == (), "it has not looked yet"
    store.queue.mark_unschedulable(nodes((8, 1), (4, 1), (16, 0)))
    assert [(node.cpus, node.gpus) for node in monitor.largest_nodes()] == [(8, 1), (16, 0)]
    store.queue.mark_unschedulable(nodes((4, 1)))
    assert [(node.cpus, node.gpus) for node in monitor.largest_nodes()] == [(4, 1)]
    leadership.resign()
    assert monitor.largest_nodes() == ()


def test_a_cluster_without_nodes_holds_nothing_until_one_comes(store: Store) -> None:
    store.submit()
    assert mark(store) == 2
    assert mark(store, (1, 0)) == 0


def test_a_claim_places_every_run_on_a_node_that_has_room_for_it(store: Store) -> None:
    """Three free CPUs on each of two nodes hold no more than two runs of two CPUs."""
    store.submit(seeds=(1, 2, 3), cpus=2)
    placed = store.queue.claim(FreeCapacity(nodes((3, 0), (3, 0))), 10)
    assert [node for _, node in placed] == ["n0", "n1"]
    assert [(record.run_id, record.attempt, record.node) for record in store.queue.live_attempts()] == [
        (lease.run_id, 1, node) for lease, node in placed
    ]


def test_an_interruption_spares_what_was_adopted(store: Store) -> None:
    survivor, lost = store.submit()
    first, _ = store.start(), store.start()
    assert store.queue.interrupt_all(spared={(first.run_id, 1)}) == 1
    assert [status(store, run_id) for run_id in (survivor, lost)] == ["running", "queued"]


def test_only_the_hash_of_a_token_is_stored(store: Store) -> None:
    store.submit(seeds=(1,))
    lease = claim(store)
    with store.database.reading() as connection:
        (row,) = connection.execute(attempts.select())
    assert lease.token not in str(row)
    assert len(row.token_hash) == 64


def test_hello_starts_the_run_and_may_be_repeated(store: Store) -> None:
    (run_id,) = store.submit(seeds=(3,))
    lease = claim(store)
    assignment = store.attempts.hello(run_id, 1, lease.token)
    assert store.attempts.hello(run_id, 1, lease.token) == assignment
    assert assignment.spec == lease.spec
    assert assignment.run_folder == f"/runs/{run_id}"
    assert (assignment.lease_seconds, assignment.heartbeat_seconds) == (30, 5)
    assert status(store, run_id) is RunStatus.RUNNING
    assert len(store.runs.events(run_id)) == 3


def test_a_finish_stores_the_result_and_may_be_repeated(store: Store) -> None:
    (run_id,) = store.submit(seeds=(1,))
    lease = store.start()
    store.attempts.finish(run_id, 1, lease.token, result(final_val_loss=2.25, device_seconds=8))
    first_run = store.runs.get(run_id)
    store.attempts.finish(run_id, 1, lease.token, result(final_val_loss=9.0))
    run = store.runs.get(run_id)
    assert run == first_run
    assert run.result == result(final_val_loss=2.25, device_seconds=8)
    assert (run.status, run.step, run.last_val_loss, run.device_seconds) == (RunStatus.SUCCEEDED, 10, 2.25, 8)
    assert store.runs.attempts(run_id)[0].outcome is AttemptOutcome.SUCCEEDED


def test_a_result_without_a_hello_is_refused(store: Store) -> None:
    (run_id,) = store.submit(seeds=(1,))
    lease = claim(store)
    with pytest.raises(ConflictError, match="has not said hello"):
        store.attempts.finish(run_id, 1, lease.token, result())
    assert store.runs.get(run_id).result is None


CALLS: tuple[tuple[str, tuple[object, ...]], ...] = (
    ("hello", ()),
    ("heartbeat", (Heartbeat(),)),
    ("append_points", (batch(0, [1]),)),
    ("checkpoint", (CheckpointNotice(step=1, path="c", size_bytes=1, sha256="s"),)),
    ("finish", (result(),)),
    ("finish", (Stopped(command=Command.CANCEL, step=1, device_seconds=1),)),
    ("finish", (failure(),)),
)
"""What a worker calls, and with what behind run, attempt and token."""


def everything(store: Store, run_id: str) -> tuple[object, ...]:
    """All that anybody can see of a run."""
    return (
        store.runs.get(run_id),
        store.runs.attempts(run_id),
        store.runs.events(run_id),
        store.runs.points(run_id),
        store.monitor.version(),
    )


def test_a_zombie_changes_nothing(store: Store) -> None:
    """The token of an attempt that was given up opens nothing, while the next attempt works and after it is done."""
    (run_id,) = store.submit(seeds=(1,))
    zombie = store.start()
    store.pass_time(POLICY.ttl_seconds + 1)
    store.queue.reap()
    store.pass_time(POLICY.backoff_seconds * 2)
    fresh = store.start()
    for _ in range(2):
        state = everything(store, run_id)
        for name, report in CALLS:
            with pytest.raises(LeaseLostError):
                getattr(store.attempts, name)(run_id, zombie.attempt, zombie.token, *report)
            assert everything(store, run_id) == state, name
        store.attempts.finish(run_id, fresh.attempt, fresh.token, result())


def test_a_wrong_run_attempt_or_token_looks_like_a_lost_lease(store: Store) -> None:
    (run_id,) = store.submit(seeds=(1,))
    lease = store.start()
    state = everything(store, run_id)
    wrong = [(run_id, 1, "guess"), (run_id, 2, lease.token), (run_id, 0, lease.token), ("nothing", 1, lease.token)]
    for name, report in CALLS:
        for run, attempt, token in [*wrong, (run_id, 10**30, lease.token), ("\x00", 1, lease.token)]:
            with pytest.raises(LeaseLostError):
                getattr(store.attempts, name)(run, attempt, token, *report)
        assert everything(store, run_id) == state, name


def test_what_an_attempt_tells_of_itself_stays_with_it(store: Store) -> None:
    (run_id,) = store.submit(seeds=(1,))
    lease = store.start()
    store.attempts.heartbeat(run_id, 1, lease.token, Heartbeat(step=1))
    assert store.runs.attempts(run_id)[0].note is None
    store.attempts.heartbeat(run_id, 1, lease.token, Heartbeat(step=2, note="went on from step 1: a reason"))
    store.attempts.heartbeat(run_id, 1, lease.token, Heartbeat(step=3))
    assert store.runs.attempts(run_id)[0].note == "went on from step 1: a reason"


def test_silence_loses_the_lease_and_the_run_is_tried_again_until_attempts_are_used_up(store: Store) -> None:
    (run_id,) = store.submit(seeds=(1,))
    for attempt in (1, 2, 3):
        lease = store.start()
        assert lease.attempt == attempt
        store.attempts.heartbeat(run_id, attempt, lease.token, Heartbeat(step=1, device_seconds=5))
        store.pass_time(POLICY.ttl_seconds + 1)
        store.queue.reap()
        expected = RunStatus.FAILED if attempt == 3 else RunStatus.RETRY_WAIT
        assert status(store, run_id) is expected
        store.pass_time(POLICY.backoff_seconds * 2**attempt)
    run = store.runs.get(run_id)
    assert run.reason == "gave up after 3 failed attempts; the last one: no sign of life for 30 s"
    held = 3 * POLICY.ttl_seconds
    assert run.device_seconds == pytest.approx(held, abs=1), "lost attempts hold their device until the lease ends"
    assert [attempt.outcome for attempt in store.runs.attempts(run_id)] == [AttemptOutcome.LOST] * 3
    assert store.claim(cpus=8, gpus=0, limit=1) == ()


def test_a_worker_may_take_longer_to_begin_than_to_breathe(store: Store) -> None:
    """A process that has to start and to import torch says nothing for a while; one that never begins is given up."""
    (run_id,) = store.submit(seeds=(1,))
    (lease,) = store.claim(cpus=1, limit=1)
    store.pass_time(POLICY.start_seconds - POLICY.ttl_seconds)
    assert store.queue.reap() == ()
    assert status(store, run_id) is RunStatus.LEASED
    store.attempts.hello(run_id, 1, lease.token)
    store.pass_time(POLICY.ttl_seconds + 1)
    assert status(store, run_id) is RunStatus.RETRY_WAIT, "once begun, it has to breathe"

    store.pass_time(POLICY.backoff_seconds * 2)
    store.claim(cpus=1, limit=1)
    store.pass_time(POLICY.start_seconds + 1)
    store.queue.reap()
    assert status(store, run_id) is RunStatus.RETRY_WAIT
    assert store.runs.get(run_id).reason == "the worker did not begin within 120 s"


def test_a_lost_attempt_of_several_processes_held_all_of_their_devices(store: Store) -> None:
    """Two GPUs for as long as the lease lasts, and two CPUs with them."""
    (run_id,) = store.submit(seeds=(1,), gpus=2)
    assert store.claim(cpus=1, gpus=2, limit=1) == ()
    store.start()
    store.pass_time(POLICY.ttl_seconds + 1)
    store.queue.reap()
    assert store.runs.get(run_id).device_seconds == pytest.approx(2 * POLICY.ttl_seconds, abs=1)


def test_a_retry_waits_longer_each_time(store: Store) -> None:
    (run_id,) = store.submit(seeds=(1,))
    for shortest, longest in ((2, 6), (4, 12)):  # 4 s and 8 s, each times 0.5 to 1.5
        lease = store.start()
        store.attempts.finish(run_id, lease.attempt, lease.token, failure())
        assert status(store, run_id) is RunStatus.RETRY_WAIT
        store.pass_time(shortest - 1)
        assert store.claim(cpus=8, gpus=0, limit=1) == ()
        store.pass_time(longest - shortest + 1.5)


def test_after_a_pause_of_the_service_leases_get_one_ttl_of_grace(store: Store) -> None:
    """The machine slept for an hour: the reaper waits until workers had time to be heard, then acts."""
    (run_id,) = store.submit(seeds=(1,))
    store.start()
    store.database.clock_offset_seconds += 3600
    assert store.queue.reap() == ()
    store.pass_time(POLICY.ttl_seconds - 1)
    assert store.queue.reap() == ()
    store.pass_time(2)
    assert len(store.queue.reap()) == 1
    assert status(store, run_id) is RunStatus.RETRY_WAIT


def test_the_loss_of_a_node_is_held_against_a_run_only_where_one_follows_the_other(store: Store) -> None:
    """A run that ends its machines would else do so for ever."""
    (run_id,) = store.submit(seeds=(1,))

    def lose(message: str) -> RunStatus:
        lease = store.start()
        store.queue.release(run_id, lease.attempt, AttemptOutcome.INTERRUPTED, message, node_died=message == "node")
        run_status = status(store, run_id)
        store.pass_time(60)
        return run_status

    messages = ["node"] * (MOST_NODES_LOST - 1)
    assert {lose(message) for message in (*messages, "the service was stopped", *messages)} == {RunStatus.QUEUED}
    assert lose("node") is RunStatus.RETRY_WAIT
    outcomes = [attempt.outcome for attempt in store.runs.attempts(run_id)]
    assert outcomes == [AttemptOutcome.INTERRUPTED] * (2 * len(messages) + 1) + [AttemptOutcome.LOST]


def test_a_release_of_another_attempt_changes_nothing(store: Store) -> None:
    (run_id,) = store.submit(seeds=(1,))
    store.start()
    for attempt in (0, 2):
        assert store.queue.release(run_id, attempt, AttemptOutcome.LOST, None) is False
    assert store.queue.release("nothing", 1, AttemptOutcome.LOST, None) is False
    assert status(store, run_id) is RunStatus.RUNNING
    with pytest.raises(ValueError, match="cannot release an attempt as succeeded"):
        store.queue.release(run_id, 1, AttemptOutcome.SUCCEEDED, None)


def test_an_interruption_does_not_count_and_the_next_attempt_resumes(store: Store) -> None:
    (run_id,) = store.submit(seeds=(1,))
    for attempt in range(1, POLICY.max_failures + 2):
        lease = store.start()
        notice = CheckpointNotice(step=attempt, path=f"c{attempt}", size_bytes=9, sha256="s")
        store.attempts.checkpoint(run_id, attempt, lease.token, notice)
        store.attempts.heartbeat(run_id, attempt, lease.token, Heartbeat(step=attempt, device_seconds=2))
        assert store.queue.interrupt_all() == 1
        assert status(store, run_id) is RunStatus.QUEUED
    lease = claim(store)
    reply = store.attempts.hello(run_id, lease.attempt, lease.token)
    assert reply.checkpoint == notice.model_copy(update={"attempt": POLICY.max_failures + 1})
    assert reply.counted_steps == {attempt: attempt for attempt in range(1, lease.attempt)}
    assert store.runs.get(run_id).device_seconds == 2 * (POLICY.max_failures + 1)


def test_what_an_attempt_left_behind_where_a_later_one_began_does_not_count(store: Store) -> None:
    """Attempt 2 went on from 20, though attempt 1 had told of 50; attempt 3 began anew; attempt 4 told of nothing.
    Nor does a repeated hello resume an attempt from what it has told itself."""
    (run_id,) = store.submit(seeds=(1,), steps=100)
    for attempt, steps in enumerate(([10, 20, 50], [25, 60], [5, 15], []), start=1):
        lease = store.start()
        for step in steps:
            notice = CheckpointNotice(step=step, path=f"c{attempt}", size_bytes=9, sha256="s")
            store.attempts.checkpoint(run_id, attempt, lease.token, notice)
        assert store.queue.interrupt_all() == 1
    lease = claim(store)
    reply = store.attempts.hello(run_id, lease.attempt, lease.token)
    assert (reply.checkpoint and reply.checkpoint.step, reply.counted_steps) == (15, {3: 15})
    store.attempts.checkpoint(run_id, lease.attempt, lease.token, notice.model_copy(update={"step": 70}))
    assert store.attempts.hello(run_id, lease.attempt, lease.token) == reply


def test_cancelling_an_experiment_leaves_what_has_ended(store: Store) -> None:
    ended_id, running, waiting = store.submit(seeds=(1, 2, 3))
    first, _ = store.start(), store.start()
    store.attempts.finish(ended_id, 1, first.token, result())
    experiment_id = store.runs.get(ended_id).experiment_id
    store.experiments.apply(experiment_id, RunAction.CANCEL)
    record = store.experiments.apply(experiment_id, RunAction.CANCEL)
    assert [status(store, run) for run in (ended_id, running, waiting)] == ["succeeded", "cancelling", "cancelled"]
    assert record.ended_at is None
    store.queue.release(running, 1, AttemptOutcome.LOST, "gone")
    assert store.experiments.get(experiment_id).ended_at is not None


# A clock that was ahead, and is put right

HOUR_SECONDS = 3_600.0


def test_a_clock_that_steps_back_stalls_no_waiting_run(store: Store) -> None:
    """Neither those that wait for nothing, nor those that wait after a failure."""
    store.database.clock_offset_seconds += HOUR_SECONDS
    failed, fresh = store.submit(seeds=(1, 2))
    store.start()
    store.queue.release(failed, 1, AttemptOutcome.LOST, "gone")
    store.database.clock_offset_seconds -= HOUR_SECONDS
    assert {lease.run_id for lease in store.claim(cpus=9, limit=9)} == {failed, fresh}


def test_a_lease_of_a_clock_that_was_ahead_ends_as_soon_as_one_of_now(store: Store) -> None:
    store.database.clock_offset_seconds += HOUR_SECONDS
    silent, alive = store.submit(seeds=(1, 2))
    leases = [store.start(), store.start()]
    store.database.clock_offset_seconds -= HOUR_SECONDS
    for _ in range(int((POLICY.start_seconds + POLICY.ttl_seconds) / 10) + 1):
        store.attempts.heartbeat(alive, 1, leases[1].token, Heartbeat(step=1))
        store.pass_time(10)
    assert (status(store, silent), status(store, alive)) == (RunStatus.RETRY_WAIT, RunStatus.RUNNING)


def test_a_cancelled_run_of_a_clock_that_was_ahead_is_overdue(store: Store) -> None:
    store.database.clock_offset_seconds += HOUR_SECONDS
    (run_id,) = store.submit(seeds=(1,))
    store.start()
    store.runs.apply(run_id, RunAction.CANCEL)
    assert store.queue.overdue_cancels() == ()
    store.database.clock_offset_seconds -= HOUR_SECONDS
    assert store.queue.overdue_cancels() == ((run_id, 1),)


def test_a_leader_of_a_clock_that_was_ahead_is_followed(store: Store) -> None:
    first, second = Leadership(store.database, "first"), Leadership(store.database, "second")
    store.database.clock_offset_seconds += HOUR_SECONDS
    assert first.hold() == 1
    assert second.hold() is None
    store.database.clock_offset_seconds -= HOUR_SECONDS
    assert second.hold() == 2


def test_what_is_to_be_told_waits_for_no_clock(store: Store, tmp_path: Path) -> None:
    """The first time; after a failure as long as a failure makes it wait."""
    webhooks = Webhooks(store.database, tmp_path)
    webhooks.policy = WebhookPolicy.parse("https://hooks.example/", "")
    ids = [webhooks.add(WebhookRequest(url="https://hooks.example/")).webhook.id for _ in range(2)]
    store.database.clock_offset_seconds += HOUR_SECONDS
    tried, fresh = (webhooks.test(id).id for id in ids)
    messages, outbox = Messages(store.database), ExportOutbox(store.database)
    messages.postpone(tried, "away")
    store.submit(seeds=(1,))
    (entry,) = outbox.due()
    store.database.clock_offset_seconds -= HOUR_SECONDS
    assert outbox.due() == (entry,)
    outbox.postpone(entry.id, "away")
    assert outbox.due() == ()
    assert {message.id for message in messages.due(9)} <= {tried, fresh} and messages.due(9)
    messages.confirm(fresh)
    assert [message.id for message in messages.due(9)] == [tried]
