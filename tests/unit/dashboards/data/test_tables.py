"""Tables in the order and with the rows that the view asks for."""

import pytest

from dashboards.data.reader import Reader
from dashboards.data.tables import RUNS_A_PAGE, run_page, sorted_leaders
from dashboards.text import words
from dashboards.view_state import ROW_KEYS, RUN_KEYS, ViewState


@pytest.fixture
def snapshot(services, finished):
    return Reader(services).snapshot(finished)


def test_the_leaderboard_is_sorted_and_ranks_stay(snapshot):
    leaders = words.leaderboard(snapshot.comparison, snapshot.styles)
    by_state = sorted_leaders(leaders, ViewState(sort="state"))
    assert [one.row.optimizer_state_bytes for one in by_state] == [3_720_192, 6_701_056]
    turned = sorted_leaders(leaders, ViewState(sort="state", descending=True))
    assert [one.rank for one in turned] == [one.rank for one in reversed(by_state)]


@pytest.mark.parametrize("key", ROW_KEYS)
@pytest.mark.parametrize("descending", [True, False])
def test_every_column_sorts_every_line(snapshot, key, descending):
    leaders = words.leaderboard(snapshot.comparison, snapshot.styles)
    shown = sorted_leaders(leaders, ViewState(sort=key, descending=descending))
    assert sorted(one.row.candidate for one in shown) == sorted(one.row.candidate for one in leaders)


@pytest.mark.parametrize("key", RUN_KEYS)
def test_every_run_is_on_one_page_whatever_the_order(snapshot, key):
    runs = [run.model_copy(update={"id": f"{n}-{run.id}"}) for n in range(12) for run in snapshot.runs]
    pages = [run_page(runs, ViewState(run_sort=key, page=number)) for number in (1, 2, 3)]
    assert pages[0].pages == 3
    assert [len(page.runs) for page in pages] == [RUNS_A_PAGE, RUNS_A_PAGE, 20]
    assert {run.id for page in pages for run in page.runs} == {run.id for run in runs}


def test_a_page_beyond_the_last_is_the_last(snapshot):
    assert run_page(snapshot.runs, ViewState(page=99)).number == 1


def test_every_run_is_in_one_state(snapshot):
    found = run_page(snapshot.runs, ViewState(run_state="diverged"))
    assert [run.lr for run in found.runs] == [1e3, 1e3]
    assert {state: number for state, number in found.states if number} == {"all": 10, "finished": 8, "diverged": 2}


def test_runs_without_a_loss_stand_last_either_way(snapshot):
    for descending in (True, False):
        runs = run_page(snapshot.runs, ViewState(run_sort="loss", run_descending=descending)).runs
        assert [run.lr for run in runs[-2:]] == [1e3, 1e3]
