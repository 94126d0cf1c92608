"""What pages read and keep: an ended attempt's curve is kept, and a retried run's is not."""

import pytest

from dashboards.data.reader import Reader
from dashboards.data.series import across_seeds, numbers
from dashboards.figures.registry import COMPARISON_FIGURES, listed
from dashboards.files.figures import FigureFiles, write
from dashboards.files.vector import FigureError
from dashboards.view_state import ViewState
from orchestrator.errors import NotFoundError
from orchestrator.jobs import Wish
from orchestrator.kinds.experiment import Answer
from tests.browser.playing import DEMO


def test_a_retried_run_is_read_anew(bench, player):
    bench.submit(DEMO)
    first, reader = player.begin(), Reader(bench)
    first.report(30)
    first.break_down("CUDA error: an illegal memory access was encountered")
    run_id = first.lease.run_id
    before = reader.series([bench.run(run_id)])[0]
    assert reader.series([bench.run(run_id)])[0] is before, "an ended attempt is read once"
    bench.wish_run(run_id, Wish.RETRY)
    while (again := player.begin()).lease.run_id != run_id:
        again.finish()
    again.finish()
    assert reader.series([bench.run(run_id)])[0].steps[-1] > before.steps[-1]


def test_every_figure_of_a_comparison_is_a_file_also_under_the_older_name(bench):
    experiment, files = bench.submit(DEMO).experiment, FigureFiles(bench)
    assert files.names(experiment) == tuple(entry.name for entry in listed(Answer.COMPARISON))
    for entry in COMPARISON_FIGURES:
        assert write(files.picture(experiment.id, entry.name, ViewState()), "svg").startswith(b"<?xml")


def test_a_figure_of_another_kind_of_experiment_is_refused(bench):
    with pytest.raises(FigureError, match="a comparison has no figure 'parallel'; it has curves, "):
        FigureFiles(bench).picture(bench.submit(DEMO).experiment.id, "parallel", ViewState())


def test_a_cell_that_there_is_not_has_no_figures(bench):
    with pytest.raises(NotFoundError, match="no cell 'nope'"):
        FigureFiles(bench).names(bench.submit(DEMO).experiment, "nope")


def test_of_other_rates_evaluations_alone_are_read_and_what_is_known_serves(bench, player):
    bench.submit(DEMO)
    player.finish(2)
    runs, reader = bench.runs(limit=2), Reader(bench)
    (marks, _) = reader.series(runs, marks=True)
    assert marks.steps.tolist() == [0, 60, 120, 180, 240]
    assert numbers(marks.train_loss) == [None] * 5
    (whole, _) = reader.series(runs)
    assert whole.steps.size == 241 and numbers(whole.train_loss[1:2]) != [None]
    assert reader.series(runs[:1], marks=True)[0] is whole
    same = across_seeds([marks], "val_loss", "seconds"), across_seeds([whole], "val_loss", "seconds")
    assert same[0].x.tolist() == same[1].x.tolist() and same[0].mean.tolist() == same[1].mean.tolist()
