"""The view lives in the URL."""

from urllib.parse import parse_qsl

import pytest

from dashboards.view_state import ViewState


@pytest.mark.parametrize(
    "view",
    [
        ViewState(),
        ViewState(x="tokens", part="half", log=True, all_rates=True),
        ViewState(mark="adapm-mini", each_seed=True),
        ViewState(x="seconds", part="whole", hidden=('a&b "<>"', "adamw")),
    ],
)
def test_a_view_survives_its_url(view):
    assert ViewState.parse(parse_qsl(view.query().removeprefix("?"))) == view


def test_defaults_leave_the_url_clean():
    assert ViewState().query() == "?"


def test_a_hand_edited_url_still_opens():
    assert ViewState.parse([("x", "furlongs"), ("part", "best"), ("log", "yes"), ("nonsense", "1")]) == ViewState()


def test_switches_turn_on_and_off_again():
    assert ViewState().toggle("log") == ViewState(log=True)
    assert ViewState().toggle("all_rates").toggle("all_rates") == ViewState()
    assert ViewState().toggle_candidate("adamw") == ViewState(hidden=("adamw",))
    assert ViewState(hidden=("adamw", "adapm")).toggle_candidate("adamw") == ViewState(hidden=("adapm",))
    assert ViewState(log=True).replace(x="tokens", part="half") == ViewState(log=True, x="tokens", part="half")


def test_a_candidate_stands_out_until_it_is_chosen_again_or_hidden():
    view = ViewState().toggle_mark("adapm")
    assert [view.fades(name, ("adapm", "adamw")) for name in ("adapm", "adamw")] == [False, True]
    assert view.toggle_mark("adapm") == ViewState()
    assert not view.toggle_candidate("adapm").fades("adamw", ("adapm", "adamw"))
    assert not ViewState(mark="nobody").fades("adamw", ("adapm", "adamw"))
