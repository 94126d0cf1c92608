"""Series: what a worker reports is what is read, whatever attempts, repetitions and chunks lie between."""

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.columns import FIELDS, WHOLE_NUMBERS, columns_of
from orchestrator.jobs import AttemptOutcome, Lease
from orchestrator.store.series import FULL_POINTS, MERGE_BATCHES, decode, encode
from orchestrator.store.tables import chunks
from tests.contract.conftest import Store
from tests.factories.stores import batch, comparison_spec, result
from worker.records.protocol import PointsBatch
from worker.records.result import Observation, Point, SampledText, TextSamples

finite, whole = st.floats(allow_nan=False, allow_infinity=False), st.integers(0, 2**53)
figures = {name: st.none() | (whole if name in WHOLE_NUMBERS else finite) for name in FIELDS}
points: st.SearchStrategy[Point] = st.builds(Point, **figures | {"step": whole, "tokens": whole})


@pytest.fixture
def lease(store: Store) -> Lease:
    store.experiments.submit(comparison_spec(seeds=(1,), steps=100_000))
    return store.start()


def send(store: Store, lease: Lease, *batches: PointsBatch) -> None:
    for points_batch in batches:
        store.attempts.append_points(lease.run_id, lease.attempt, lease.token, points_batch)


def losses(store: Store, lease: Lease) -> dict[int, float | None]:
    return {point.step: point.train_loss for point in store.runs.points(lease.run_id)}


def chunk_sizes(store: Store) -> list[int]:
    with store.database.reading() as connection:
        return [row.points for row in connection.execute(sa.select(chunks).order_by(chunks.c.sequence))]


@given(st.lists(points, max_size=30))
@settings(deadline=None, suppress_health_check=list(HealthCheck))
def test_a_chunk_keeps_every_bit(sent: list[Point]) -> None:
    read = list(decode([encode(columns_of(sent))], FIELDS).points())
    assert read == sent
    assert [type(value) for point in read for _, value in point] == [
        type(value) for point in sent for _, value in point
    ]


def test_points_come_back_as_they_were_sent(store: Store, lease: Lease) -> None:
    first, second = batch(0, [0, 1, 2], loss=5.5), batch(1, [3, 4], loss=4.5)
    send(store, lease, first, second)
    assert store.runs.points(lease.run_id) == first.points + second.points
    assert store.runs.points(lease.run_id, after_step=2) == second.points
    assert store.runs.points(lease.run_id, after_step=10**30) == ()


def test_a_repeated_batch_changes_nothing(store: Store, lease: Lease) -> None:
    send(store, lease, batch(0, [1]), batch(1, [2]))
    state = store.runs.points(lease.run_id), store.monitor.version()
    send(store, lease, batch(0, [1], loss=9.0), batch(1, [2], loss=9.0))
    assert (store.runs.points(lease.run_id), store.monitor.version()) == state


def test_a_lost_batch_does_not_stop_the_next_one(store: Store, lease: Lease) -> None:
    """The database may be a restored backup: the worker goes on behind the gap."""
    send(store, lease, batch(0, [1]), batch(5, [2]))
    assert sorted(losses(store, lease)) == [1, 2]


def test_of_a_step_that_several_attempts_reached_nothing_of_an_older_one_is_left(store: Store, lease: Lease) -> None:
    sent = (Point(step=1, tokens=8, train_loss=1.0, val_loss=1.5), Point(step=2, tokens=16, train_loss=1.0))
    send(store, lease, PointsBatch.from_points(sequence=0, points=sent))
    store.queue.release(lease.run_id, 1, AttemptOutcome.INTERRUPTED, None)
    second = store.start()
    send(store, second, PointsBatch.from_points(sequence=0, points=(Point(step=1, tokens=8, train_loss=2.0),)))
    send(store, second, PointsBatch.from_points(sequence=1, points=(Point(step=1, tokens=8, grad_norm=0.5),)))
    merged = Point(step=1, tokens=8, train_loss=2.0, grad_norm=0.5)
    assert store.runs.points(lease.run_id) == (merged, sent[1])


def test_a_chart_keeps_the_spike_of_a_long_run(store: Store, lease: Lease) -> None:
    steps = range(9_000)
    points = tuple(Point(step=n, tokens=n, train_loss=50.0 if n == 4_321 else 2.0) for n in steps)
    send(store, lease, PointsBatch.from_points(sequence=0, points=points))
    (chart,) = store.runs.charts([lease.run_id], "train_loss", 90)
    assert len(chart.first_step) == len(chart.high) == 90
    assert (chart.first_step[0], chart.last_step[-1], sum(chart.points)) == (0, 8_999, 9_000)
    assert [first for first, high in zip(chart.first_step, chart.high, strict=True) if high == 50.0] == [4_300]
    assert max(chart.mean) == pytest.approx(2.0 + 48.0 / 100)
    assert set(chart.low) == {2.0}
    (part,) = store.runs.charts([lease.run_id], "train_loss", 90, after_step=4_319, until_step=4_322)
    assert part.high == part.mean == (2.0, 50.0, 2.0)
    (nothing,) = store.runs.charts([lease.run_id], "val_loss", 90)
    assert nothing.points == ()


def test_small_batches_do_not_pile_up(store: Store, lease: Lease) -> None:
    """A worker that reports every second leaves a row for half a minute, and full chunks are not rewritten."""
    per_batch = 10
    count = 4 * MERGE_BATCHES + 5
    send(store, lease, *[batch(n, range(n * per_batch, (n + 1) * per_batch)) for n in range(count)])
    sizes = chunk_sizes(store)
    assert len(sizes) == 1 + 5
    assert sizes[0] == 4 * MERGE_BATCHES * per_batch >= FULL_POINTS
    store.attempts.finish(lease.run_id, 1, lease.token, result())
    assert chunk_sizes(store) == [sizes[0], 5 * per_batch]
    assert sorted(losses(store, lease)) == list(range(count * per_batch))


def test_a_run_shows_its_newest_losses_and_pace(store: Store, lease: Lease) -> None:
    send(store, lease, PointsBatch.from_points(sequence=0, points=(Point(step=0, tokens=0, val_loss=5.5),)))
    send(store, lease, batch(1, range(1, 5), loss=4.0))
    run = store.runs.get(lease.run_id)
    assert (run.last_train_loss, run.last_val_loss) == (4.0, 5.5)
    assert run.tokens_per_second == pytest.approx(1024 / 0.05)


def test_texts_are_read_by_step_from_the_newest_attempt(store: Store, lease: Lease) -> None:
    """As they were sent, whatever is in them."""
    texts = (SampledText(prompt="<b>", text="\u202e\ud7ff</script>", ended=True),)
    first, later = TextSamples(step=0, texts=texts), TextSamples(step=4, texts=(*texts, *texts))
    send(store, lease, PointsBatch.from_points(0, batch(0, range(5)).points, [later, first, first]))
    assert store.runs.samples(lease.run_id) == (first, later)
    store.queue.release(lease.run_id, 1, AttemptOutcome.INTERRUPTED, None)
    second = store.start()
    replacement = TextSamples(step=0, texts=(SampledText(prompt="x", text="y", ended=False),))
    send(store, second, PointsBatch.from_points(0, batch(0, range(2)).points, [replacement]))
    assert store.runs.samples(lease.run_id) == (replacement, later)
    assert store.runs.samples(lease.run_id, after_step=0, most_steps=1) == (later,)
    assert store.runs.sampled_steps(lease.run_id) == (0, 4)


def observed(step: int, norm: float, probe: str = "residual") -> Observation:
    return Observation(step=step, probe=probe, blocks={"transformer.wte.weight": {"relative_norm": norm}})


def test_observations_are_read_by_step_and_probe_from_the_newest_attempt(store: Store, lease: Lease) -> None:
    """A repeated batch adds nothing; what a later attempt has not reached again stays."""
    first = [observed(2, 0.5, "residual"), observed(2, 0.1, "gradient-sparsity"), observed(4, 0.6)]
    sent = batch(0, range(5)).model_copy(update={"observations": tuple(first)})
    send(store, lease, sent, sent)
    assert store.runs.observations(lease.run_id) == (first[1], first[0], first[2])

    store.queue.release(lease.run_id, 1, AttemptOutcome.INTERRUPTED, None)
    second = store.start()
    replacement = observed(2, 0.7)
    send(store, second, batch(0, range(3)).model_copy(update={"observations": (replacement,)}))
    assert store.runs.observations(lease.run_id) == (first[1], replacement, first[2])
    assert store.runs.observations(lease.run_id, after_step=2) == (first[2],)
    assert store.runs.observations(lease.run_id, most_steps=1) == (first[1], replacement)
    assert store.runs.observations(lease.run_id, after_step=4) == ()


def test_an_observation_that_comes_twice_is_kept_once(store: Store, lease: Lease) -> None:
    """In one batch and in two of one attempt; what is new beside it arrives."""
    first, second = observed(1, 0.5), observed(2, 0.6)
    send(store, lease, batch(0, [1]).model_copy(update={"observations": (first, first)}))
    send(store, lease, batch(1, [2]).model_copy(update={"observations": (first, second)}))
    assert store.runs.observations(lease.run_id) == (first, second)
