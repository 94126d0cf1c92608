"""Where the names of marks stand, so that none covers another: decided here, the same for page, file and print.

The first in line takes the first of the sides that is free; a mark that finds none goes without, and is named in the
figure's legend.
"""

from collections.abc import Sequence
from dataclasses import dataclass

SIDES = ("top right", "bottom right", "top left", "bottom left", "top center", "bottom center")
"""As Plotly calls them, the most readable first."""
LETTER_PIXELS, LINE_PIXELS = 6.3, 14.0
"""Of a letter of size 11: its usual width, and the height of a line."""
MARK_PIXELS = 5.5
"""Around the middle of a mark."""
GAP_PIXELS = 7.0
"""From there to its name: Plotly leaves it."""


@dataclass(frozen=True, kw_only=True)
class Mark:
    """A mark and its name; x and y in pixels, y growing upwards."""

    name: str
    x: float
    y: float


@dataclass(frozen=True, kw_only=True)
class Box:
    """What is taken, in pixels."""

    left: float
    right: float
    low: float
    high: float

    def meets(self, other: "Box") -> bool:
        """Whether the two share anything."""
        apart = self.right <= other.left or other.right <= self.left or self.high <= other.low or other.high <= self.low
        return not apart


def sides(marks: Sequence[Mark], room: Box) -> list[str | None]:
    """The side of each mark at which its name stands, within the room; None where every side is taken. Earlier marks
    choose first."""
    taken = [_around(mark) for mark in marks]
    chosen: list[str | None] = []
    for place, mark in enumerate(marks):
        others = [box for at, box in enumerate(taken) if at != place]
        free = (side for side in SIDES if _fits(box := _label(mark, side), room) and not any(map(box.meets, others)))
        side = next(free, None)
        chosen.append(side)
        if side is not None:
            taken.append(_label(mark, side))
    return chosen


def _around(mark: Mark) -> Box:
    return Box(
        left=mark.x - MARK_PIXELS, right=mark.x + MARK_PIXELS, low=mark.y - MARK_PIXELS, high=mark.y + MARK_PIXELS
    )


def _label(mark: Mark, side: str) -> Box:
    width = LETTER_PIXELS * len(mark.name)
    level, _, across = side.partition(" ")
    low = mark.y + GAP_PIXELS if level == "top" else mark.y - GAP_PIXELS - LINE_PIXELS
    left = {"right": mark.x + GAP_PIXELS, "left": mark.x - GAP_PIXELS - width, "center": mark.x - width / 2}[across]
    return Box(left=left, right=left + width, low=low, high=low + LINE_PIXELS)


def _fits(box: Box, room: Box) -> bool:
    return room.left <= box.left and box.right <= room.right and room.low <= box.low and box.high <= room.high
