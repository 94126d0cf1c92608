"""The view lives in the URL."""

from urllib.parse import parse_qsl

import pytest

from dashboards.view_state import ViewState


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
