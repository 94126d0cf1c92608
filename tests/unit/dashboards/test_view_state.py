"""The view lives in the URL."""

from urllib.parse import parse_qsl

import pytest

from dashboards.data.search import Search
from dashboards.view_state import ViewState
from orchestrator.run_table.fields import FilterError


@pytest.mark.parametrize(
    "view",
    [
        ViewState(),
        ViewState(x="tokens", log=True, baseline="lion"),
        ViewState(all_columns=True, log=True),
        ViewState(x="seconds", hidden=('a&b "<>"', "adamw")),
    ],
)
def test_a_view_survives_its_url(view):
    assert ViewState.parse(parse_qsl(view.query().removeprefix("?"))) == view


def test_defaults_leave_the_url_clean():
    assert ViewState().query() == "?"


def test_a_hand_edited_url_still_opens():
    assert ViewState.parse([("x", "furlongs"), ("log", "yes"), ("part", "half"), ("sort", "lr")]) == ViewState()


def test_a_state_that_there_is_none_of_is_refused_lest_all_rows_pass_for_those_asked_for():
    with pytest.raises(FilterError, match=r"nope.*all, "):
        Search.parse([("state", "nope")])
    assert Search.parse([("state", "")]) == Search()


def test_a_label_that_there_can_be_none_of_is_refused():
    with pytest.raises(FilterError, match="the label 'a,b' must be 1 to 60 printable"):
        Search.parse([("label", "a,b")])
    assert Search.parse([("label", " ")]) == Search()


def test_switches_turn_on_and_off_again():
    assert ViewState().toggle("log") == ViewState(log=True)
    assert ViewState().toggle("all_columns").toggle("all_columns") == ViewState()
    assert ViewState().toggle_candidate("adamw") == ViewState(hidden=("adamw",))
    assert ViewState(hidden=("adamw", "adapm")).toggle_candidate("adamw") == ViewState(hidden=("adapm",))
    assert ViewState(log=True).replace(x="tokens") == ViewState(log=True, x="tokens")


def test_more_columns_redraw_no_figure_and_unfold_nothing():
    view = ViewState(cell="gpt2-tiny", baseline="lion").toggle("all_columns")
    assert "columns=all" in view.query()
    assert view.figure_query() == view.toggle("all_columns").figure_query()
    assert not view.changes_curves()
    assert ViewState(x="tokens").changes_curves() and ViewState(hidden=("adamw",)).changes_curves()
