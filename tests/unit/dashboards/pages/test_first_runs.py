"""Tables in the order that the view asks for."""

import pytest

from dashboards.data.reader import Reader
from dashboards.pages.routes import RUNS_SHOWN, first_runs
from orchestrator.jobs import RunStatus


@pytest.fixture
def snapshot(services, finished):
    return Reader(services).snapshot(finished)


def test_the_first_runs_begin_with_those_at_work(snapshot):
    runs = [run.model_copy(update={"position": n, "status": RunStatus.RUNNING if n > 70 else run.status})
            for n, run in enumerate([*snapshot.runs] * 8)]  # fmt: skip
    shown = [run.position for run in first_runs(runs)]
    assert len(shown) == RUNS_SHOWN
    assert shown == [*range(71, 80), *range(RUNS_SHOWN - 9)]
