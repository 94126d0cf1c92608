"""Kept curves of pages: an ended attempt's is kept, and a retried run's is not."""

from dashboards.data.reader import Reader
from orchestrator.jobs import RunAction
from tests.factories.playing import DEMO


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
