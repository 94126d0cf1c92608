"""Names of marks: none covers another name or a mark, whatever lies where; the first in line is named first."""

import itertools

import numpy as np
import pytest

from dashboards.figures.tradeoffs import Box, NamedMark, sides

ROOM = Box(left=0, right=500, low=0, high=240)


def test_a_lonely_mark_has_its_name_above_to_the_right():
    assert sides([NamedMark(name="AdamW", x=100, y=100)], ROOM) == ["top right"]


def test_names_do_not_lie_on_the_interval_of_another_mark_or_on_their_own():
    crossed = NamedMark(name="AdamW", x=100, y=100)
    beside = NamedMark(name="Lion", x=120, y=220, low=10, high=230)
    assert sides([crossed, beside], ROOM) == ["top left", "bottom right"]
    between = [NamedMark(name="AdamW", x=x, y=100, low=20, high=200) for x in (90, 100, 110)]
    assert sides(between, ROOM) == ["top left", None, "top right"], "above and below is its own interval"


def test_names_stay_in_the_room():
    corners = [
        NamedMark(name="AdamW", x=496, y=236),
        NamedMark(name="Lion", x=4, y=4),
        NamedMark(name="a" * 200, x=200, y=100),
    ]
    assert sides(corners, ROOM) == ["bottom left", "top right", None]


def test_the_first_of_several_at_one_place_are_named_and_the_rest_are_not():
    here = [NamedMark(name="AdaPM-mini", x=200, y=100 + number / 10) for number in range(9)]
    found = sides(here, ROOM)
    assert found[:2] == ["top right", "bottom right"]
    assert None in found and set(found[found.index(None) :]) == {None}


@pytest.mark.parametrize("seed", range(5))
def test_no_name_covers_another_or_a_mark(seed: int):
    places = np.random.default_rng(seed).uniform((150, 60), (350, 180), (14, 2)).tolist()
    marks = [NamedMark(name=f"optimizer {number}", x=x, y=y) for number, (x, y) in enumerate(places)]
    chosen = sides(marks, ROOM)
    assert sides(marks, ROOM) == chosen
    names = {at: mark.label(side) for at, (mark, side) in enumerate(zip(marks, chosen, strict=True)) if side}
    assert len(names) >= 5
    assert not any(one.meets(other) for one, other in itertools.combinations(names.values(), 2))
    assert not any(
        box.meets(mark.box()) for at, box in names.items() for other, mark in enumerate(marks) if at != other
    )
