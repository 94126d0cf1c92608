"""Points become lines without a number being bent; an ended attempt's are kept, and a retried run's are not."""

import numpy as np

from dashboards.data.reader import Reader
from dashboards.data.series import (
    MAX_POINTS,
    Band,
    Series,
    across_seeds,
    elapsed_seconds,
    evenly_spaced_rows,
    numbers,
    series,
    smooth,
    spiky_rows,
    thin_band,
)
from orchestrator.columns import Columns, columns_of
from orchestrator.jobs import RunAction
from tests.factories.playing import DEMO
from worker.records.result import Point


def made(losses: list[float | None], *, ended: bool = False, every: int = 1) -> Series:
    """A run that reports a validation loss every `every` steps of half a second."""
    points = [
        Point(step=every * index, tokens=100 * every * index, val_loss=value, train_loss=value, step_seconds=0.5)
        for index, value in enumerate(losses)
    ]
    return series(columns_of(points), ended=ended)


def long_run(spike_at: int, steps: int = 20_000) -> tuple[Columns, Series]:
    """A loss of 2 with one spike; a validation loss every 5,000 steps."""
    points = [
        Point(step=n, tokens=n, train_loss=9.0 if n == spike_at else 2.0, val_loss=None if n % 5_000 else 3.0)
        for n in range(steps + 1)
    ]
    columns = columns_of(points)
    return columns, series(columns, ended=True)


def test_columns_keep_the_points_and_turn_null_into_nan():
    run = made([5.0, None, 3.0])
    assert run.steps.tolist() == [0, 1, 2]
    assert run.tokens.tolist() == [0, 100, 200]
    assert numbers(run.val_loss) == [5.0, None, 3.0]
    assert np.isnan(run.grad_norm).all()


def test_numbers_are_those_of_five_digits_at_any_magnitude():
    random = np.random.default_rng(1)
    values = random.normal(0, 1, 2_000) * 10.0 ** random.integers(-30, 30, 2_000)
    odd = [0.0, -0.0, 99_999.5, 123_456.5, 1e300, 5e-324, -2.5]
    values = np.concatenate([values, odd])
    assert numbers(values) == [float(f"{value:.5g}") for value in values.tolist()]
    assert numbers(np.array([np.nan, np.inf, -np.inf])) == [None, None, None]


def test_elapsed_counts_the_steps_between_two_points():
    assert elapsed_seconds(np.array([0.0, 10.0, 20.0]), np.array([np.nan, 0.5, 0.25])).tolist() == [0.0, 5.0, 7.5]


def test_smoothing_is_the_mean_of_the_window_and_skips_what_is_missing():
    values = np.array([1.0, 2.0, np.nan, 4.0, 5.0])
    assert numbers(smooth(values, 3)) == [1.5, 1.5, None, 4.5, 4.5]
    assert smooth(values, 1) is values


def test_band_is_the_mean_lowest_and_highest_seed():
    band = across_seeds([made([4.0, 3.0]), made([6.0, 2.0])], "val_loss", "tokens")
    assert band.x.tolist() == [0.0, 100.0]
    assert band.mean.tolist() == [5.0, 2.5]
    assert band.low.tolist() == [4.0, 2.0]
    assert band.high.tolist() == [6.0, 3.0]


def test_a_running_seed_is_part_of_the_mean_as_far_as_it_has_come():
    band = across_seeds([made([4.0, 3.0, 2.0], ended=True), made([6.0])], "val_loss", "steps")
    assert band.mean.tolist() == [5.0, 3.0, 2.0]


def test_a_mean_ends_where_a_diverged_seed_ends():
    band = across_seeds([made([4.0, 3.0, 2.0], ended=True), made([6.0, 9.0, None], ended=True)], "val_loss", "steps")
    assert band.mean.tolist() == [5.0, 6.0]


def test_seeds_may_report_at_different_steps():
    band = across_seeds([made([4.0, 3.0, 2.0]), made([6.0, 4.0], every=2)], "val_loss", "steps")
    assert band.x.tolist() == [0, 1, 2]
    assert band.mean.tolist() == [5.0, 3.0, 3.0]


def test_thinning_keeps_both_ends_and_the_limit():
    long = np.arange(10 * MAX_POINTS, dtype=float)
    band = thin_band(Band(x=long, mean=long, low=long, high=long))
    assert band.x.size <= MAX_POINTS
    assert (band.x[0], band.x[-1]) == (0.0, long[-1])


def test_a_runs_own_figure_keeps_its_one_spike_its_evaluations_and_both_ends():
    columns, run = long_run(spike_at=12_345)
    drawn = spiky_rows(run, columns)
    assert drawn.steps.size <= 4 * MAX_POINTS
    assert drawn.train_loss.max() == 9.0
    assert drawn.steps[np.isfinite(drawn.val_loss)].tolist() == [0, 5_000, 10_000, 15_000, 20_000]
    assert (drawn.steps[0], drawn.steps[-1]) == (0, 20_000)


def test_a_run_that_is_evaluated_all_the_time_is_drawn_in_few_points():
    losses: list[float | None] = [3.0 - index / 4_000 + (index == 2_222) for index in range(4_000)]
    run = made(losses, every=5)
    assert evenly_spaced_rows(run, 20_000).steps.size <= MAX_POINTS + 2
    drawn = spiky_rows(
        run, columns_of([Point(step=5 * index, tokens=0, val_loss=value) for index, value in enumerate(losses)])
    )
    assert drawn.steps.size <= 2 * MAX_POINTS
    assert drawn.val_loss.max() == run.val_loss.max(), "the spike is an evaluation"


def test_seeds_of_a_long_run_are_drawn_at_the_same_steps_wherever_their_spikes_are():
    first, second = (evenly_spaced_rows(long_run(spike_at=position)[1], 20_000) for position in (1_111, 7_777))
    assert first.steps.size <= MAX_POINTS + 6
    assert first.steps.tolist() == second.steps.tolist()
    assert evenly_spaced_rows(first, 1_000) is first


def test_a_retried_run_is_read_anew(services, player):
    services.experiments.submit(DEMO)
    first, reader = (
        player.begin(),
        Reader(services),
    )
    first.report(30)
    first.break_down("CUDA error: an illegal memory access was encountered")
    run_id = first.lease.run_id
    original = reader.series([services.runs.get(run_id)])[0]
    assert reader.series([services.runs.get(run_id)])[0] is original, "an ended attempt is read once"
    services.runs.apply(run_id, RunAction.RETRY)
    while (played_run := player.begin()).lease.run_id != run_id:
        played_run.finish()
    played_run.finish()
    assert reader.series([services.runs.get(run_id)])[0].steps[-1] > original.steps[-1]
