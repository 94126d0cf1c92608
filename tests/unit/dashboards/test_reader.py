"""What pages read and keep: an ended attempt's curve is kept, and a retried run's is not."""

import pytest

from dashboards.figure_files import FigureFiles
from dashboards.reader import Reader
from dashboards.vector import FigureError
from dashboards.viewstate import ViewState
from orchestrator.errors import NotFoundError
from orchestrator.jobs import Wish
from orchestrator.studies.demo import DEMO


def test_a_retried_run_is_read_anew(bench, player):
    bench.submit(DEMO)
    first, reader = player.begin(), Reader(bench)
    first.report(30)
    first.break_down("CUDA error: an illegal memory access was encountered")
    run_id = first.lease.run_id
    before = reader.series(bench.run(run_id))
    assert reader.series(bench.run(run_id)) is before, "an ended attempt is read once"
    bench.wish_run(run_id, Wish.RETRY)
    while (again := player.begin()).lease.run_id != run_id:
        again.finish()
    again.finish()
    assert reader.series(bench.run(run_id)).steps[-1] > before.steps[-1]


@pytest.mark.parametrize("name", ["breakdown", "loss-memory", "loss-hours", "timeline"])
def test_a_figure_of_the_page_alone_is_refused_as_a_file(bench, name):
    experiment = bench.submit(DEMO).experiment
    with pytest.raises(FigureError, match="files are curves"):
        FigureFiles(bench).picture(experiment.id, name, ViewState())


def test_a_cell_that_there_is_not_has_no_figures(bench):
    with pytest.raises(NotFoundError, match="no cell 'nope'"):
        FigureFiles(bench).names(bench.submit(DEMO).experiment, "nope")
