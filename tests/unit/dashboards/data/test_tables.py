"""Tables in the order that the view asks for."""

import pytest

from dashboards.data.reader import Reader
from dashboards.data.tables import RUNS_SHOWN, first_runs, sort_rows, sorted_leaders
from dashboards.text import words
from dashboards.view_state import ViewState
from orchestrator.jobs import RunStatus


@pytest.fixture
def snapshot(services, finished):
    return Reader(services).snapshot(finished)


def test_the_leaderboard_is_sorted_and_ranks_stay(snapshot):
    leaders = words.leaderboard(snapshot.comparison, snapshot.styles)
    by_state = sorted_leaders(leaders, ViewState(sort="state"))
    assert [leader.row.optimizer_state_bytes for leader in by_state] == [3_720_192, 6_701_056]
    turned = sorted_leaders(leaders, ViewState(sort="state", descending=True))
    assert [leader.rank for leader in turned] == [leader.rank for leader in reversed(by_state)]


def test_the_first_runs_begin_with_those_at_work(snapshot):
    runs = [run.model_copy(update={"position": n, "status": RunStatus.RUNNING if n > 70 else run.status})
            for n, run in enumerate([*snapshot.runs] * 8)]  # fmt: skip
    shown = [run.position for run in first_runs(runs)]
    assert len(shown) == RUNS_SHOWN
    assert shown == [*range(71, 80), *range(RUNS_SHOWN - 9)]


def test_rows_without_a_value_stand_last_either_way(snapshot):
    for descending in (True, False):
        rows = sort_rows(snapshot.runs, lambda run: run.result and run.result.final_val_loss, descending=descending)
        assert [run.lr for run in rows[-2:]] == [1e3, 1e3]
