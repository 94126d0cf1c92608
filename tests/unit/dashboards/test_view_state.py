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
    assert ViewState().toggled("log") == ViewState(log=True)
    assert ViewState().toggled("all_rates").toggled("all_rates") == ViewState()
    assert ViewState().toggled_candidate("adamw") == ViewState(hidden=("adamw",))
    assert ViewState(hidden=("adamw", "adapm")).toggled_candidate("adamw") == ViewState(hidden=("adapm",))
    assert ViewState(log=True).with_x("tokens").with_part("half") == ViewState(log=True, x="tokens", part="half")


def test_a_candidate_stands_out_until_it_is_chosen_again_or_hidden():
    view = ViewState().marked("adapm")
    assert [view.fades(name, ("adapm", "adamw")) for name in ("adapm", "adamw")] == [False, True]
    assert view.marked("adapm") == ViewState()
    assert not view.toggled_candidate("adapm").fades("adamw", ("adapm", "adamw"))
    assert not ViewState(mark="nobody").fades("adamw", ("adapm", "adamw"))
