"""Figures of trade-offs: loss over memory and over device-hours, with names where they cover nothing. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from dashboards.figures.base import (
    Figure,
    add_legend,
    bytes_axis,
    figure,
    final_loss_title,
    layout_of,
    open_ends,
    plain,
    trace,
    whiskers,
)
from dashboards.palette import THEMES, Style, ThemeName
from dashboards.text import formats
from dashboards.view_state import ViewState
from orchestrator.analysis.comparison import SECONDS_PER_HOUR
from orchestrator.records import Comparison, Interval

SIDES = ("top right", "bottom right", "top left", "bottom left", "top center", "bottom center")
"""As Plotly calls them, the most readable first."""
LETTER_PIXELS, LINE_PIXELS = 6.3, 14.0
"""Of a letter of size 11: its usual width, and the height of a line."""
MARK_PIXELS = 5.5
"""Around the middle of a mark."""
GAP_PIXELS = 7.0
"""From there to its name: Plotly leaves it."""


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

    def has_room_for(self, other: "Box") -> bool:
        """Whether all of the other is within this one."""
        return (
            self.left <= other.left and other.right <= self.right and self.low <= other.low and other.high <= self.high
        )


@dataclass(frozen=True, kw_only=True)
class NamedMark:
    """A mark and its name; x and y in pixels, y growing upwards."""

    name: str
    x: float
    y: float
    low: float | None = None
    high: float | None = None
    """Where its interval ends."""

    def interval(self) -> Box:
        """What its interval covers, the mark's middle at the least."""
        low, high = (self.y if end is None else end for end in (self.low, self.high))
        return Box(left=self.x - 1, right=self.x + 1, low=low, high=high)

    def box(self) -> Box:
        """What the mark itself covers."""
        half = MARK_PIXELS
        return Box(left=self.x - half, right=self.x + half, low=self.y - half, high=self.y + half)

    def label(self, side: str) -> Box:
        """What its name covers at that side."""
        width = LETTER_PIXELS * len(self.name)
        level, _, across = side.partition(" ")
        low = self.y + GAP_PIXELS if level == "top" else self.y - GAP_PIXELS - LINE_PIXELS
        left = {"right": self.x + GAP_PIXELS, "left": self.x - GAP_PIXELS - width, "center": self.x - width / 2}[across]
        return Box(left=left, right=left + width, low=low, high=low + LINE_PIXELS)


def sides(marks: Sequence[NamedMark], room: Box) -> list[str | None]:
    """The side of each mark at which its name stands, within the room, the same for page, file and print. Earlier marks
    choose first; None where every side is taken, by marks, intervals or names: such a mark is named in the figure's
    legend."""
    taken, intervals = [mark.box() for mark in marks], [mark.interval() for mark in marks]
    chosen: list[str | None] = []
    for place, mark in enumerate(marks):
        others = taken[:place] + taken[place + 1 :] + intervals
        labels = {side: mark.label(side) for side in SIDES}
        free = (side for side, box in labels.items() if room.has_room_for(box) and not any(map(box.meets, others)))
        chosen.append(side := next(free, None))
        if side is not None:
            taken.append(labels[side])
    return chosen


Price = Literal["memory", "hours"]
FEWEST_HOURS = 0.1
"""Where every run took less, its time is told in seconds."""
RIGHT_PIXELS = 84
"""The margin of loss over price: room for names beside the marks."""
MOST_SPREADS = 4.0
"""An interval that reaches further beyond the means, as one of two seeds does, would flatten them: it ends at the
border in an arrow that says how far it goes."""
PLOTS_PIXELS = {"wide": (480.0, 236.0), "narrow": (180.0, 236.0)}
"""Within its margins, on a desk and on a phone: what names must not be closer for. A wider one has more room."""


@dataclass(frozen=True, kw_only=True)
class PricedLoss:
    """A candidate's loss and what it cost."""

    candidate: str
    title: str
    colour: str
    symbol: str
    cost: float
    loss: Interval
    """With the interval of its difference to the baseline."""
    is_on_front: bool
    """Of loss and memory, as the leaderboard names it: whatever is hidden, and without unstable candidates."""
    is_front_shown: bool
    """Whether intervals show that it is on that front, or that it is not."""


def loss_by_price(
    comparison: Comparison,
    styles: Mapping[str, Style],
    view: ViewState,
    theme: ThemeName,
    price: Price,
    *,
    narrow: bool = False,
) -> Figure:
    """A mark a candidate at its loss and what that cost, with the interval of its difference; a line joins the Pareto
    front, whose marks are the first to be named where marks crowd."""
    placed = [each for each in _priced_losses(comparison, styles, theme, price) if each.candidate not in view.hidden]
    is_short = price == "hours" and max((each.cost for each in placed), default=1.0) < FEWEST_HOURS
    if is_short:
        placed = [replace(each, cost=SECONDS_PER_HOUR * each.cost) for each in placed]
    time = f"device-{'seconds' if is_short else 'hours'} per run at the setting found"
    x_title = "bytes of optimizer state" if price == "memory" else time
    layout = layout_of(theme, x_title=x_title, y_title=final_loss_title(comparison))
    layout["margin"] |= {"r": RIGHT_PIXELS}
    if not placed:
        empty = "No candidate has a result." if comparison.complete else "Candidates with a result will appear here."
        return figure([], layout, theme, empty=empty)
    _set_ranges(layout, placed)
    if price == "memory":
        least, most = layout["xaxis"]["range"]
        layout["xaxis"] |= bytes_axis(most, least)
    front = [each for each in placed if each.is_on_front] if price == "memory" else _front(placed)
    named = _label_sides(placed, front, layout, PLOTS_PIXELS["narrow" if narrow else "wide"])
    unit = "s" if is_short else "h"
    data = [_mark(each, price, unit, named.get(each.candidate)) for each in placed]
    if len(front) > 1:
        steps = sorted((each.cost, each.loss.mean) for each in front)
        look = {"shape": "hv", "width": 1, "dash": "dot", "color": THEMES[theme].muted}
        data.insert(
            0, trace("lines", [cost for cost, _ in steps], [loss for _, loss in steps], line=look, hoverinfo="skip")
        )
    ends = [(each.cost, each.loss.low, each.loss.high, each.colour) for each in placed]
    if len(named) < len(placed):
        add_legend(layout)
    return figure(data + open_ends(layout["yaxis"]["range"], ends), layout, theme, empty="")


def _priced_losses(
    comparison: Comparison, styles: Mapping[str, Style], theme: ThemeName, price: Price
) -> list[PricedLoss]:
    """The candidates with a loss and a known cost."""
    found, losses = [], comparison.losses_beside_baseline()
    for row in comparison.rows:
        cost = row.optimizer_state_bytes if price == "memory" else row.run_device_hours
        if row.candidate in losses and cost is not None:
            style = styles[row.candidate]
            found.append(
                PricedLoss(
                    candidate=row.candidate, title=row.title, colour=style.colour(theme), symbol=style.symbol,
                    cost=cost, loss=losses[row.candidate], is_on_front=row.on_pareto_front,
                    is_front_shown=row.pareto_front_shown,
                )
            )  # fmt: skip
    return found


def _front(placed: Sequence[PricedLoss]) -> list[PricedLoss]:
    """Those that nobody beats in both, the cheapest first."""
    front: list[PricedLoss] = []
    for each in sorted(placed, key=lambda one: (one.cost, one.loss.mean)):
        if not front or each.loss.mean < front[-1].loss.mean:
            front.append(each)
    return front


def _label_sides(
    placed: Sequence[PricedLoss], front: Sequence[PricedLoss], layout: dict[str, Any], pixels: tuple[float, float]
) -> dict[str, str]:
    """Candidate → the side of its mark at which its name stands; without those whose name would cover something."""
    (left, right), (low, high) = layout["xaxis"]["range"], layout["yaxis"]["range"]
    width, height = pixels
    firsts = sorted(placed, key=lambda one: one not in front)

    def across(value: float) -> float:
        return float(width * (value - left) / (right - left))

    def up(value: float) -> float:
        return float(height * (min(max(value, low), high) - low) / (high - low))

    marks = [
        NamedMark(
            name=one.title,
            x=across(one.cost),
            y=up(one.loss.mean),
            low=None if one.loss.low is None else up(one.loss.low),
            high=None if one.loss.high is None else up(one.loss.high),
        )
        for one in firsts
    ]
    found = sides(marks, Box(left=0, right=width + RIGHT_PIXELS, low=0, high=height))
    return {one.candidate: side for one, side in zip(firsts, found, strict=True) if side is not None}


def _mark(one: PricedLoss, price: Price, unit: str, side: str | None) -> dict[str, Any]:
    """`unit`: of a cost in time."""
    cost = formats.size(one.cost) if price == "memory" else f"{formats.hours(one.cost)} {unit}"
    is_sure, place = one.is_front_shown or price != "memory", ""
    if price == "memory":
        place = f", {'on' if one.is_on_front else 'behind'} the front{'' if is_sure else ', not shown'}"
    beside = {"text": [plain(one.title)], "textposition": side, "textfont": {"size": 11, "color": one.colour}}
    return trace(
        "markers+text" if side else "markers",
        [one.cost],
        [one.loss.mean],
        name=plain(one.title),
        error_y=whiskers([one.loss.mean], [(one.loss.low, one.loss.high)], one.colour),
        marker={"size": 10, "symbol": one.symbol if is_sure else f"{one.symbol}-open", "color": one.colour},
        hovertemplate=f"%{{y:.4f}} at {cost}{place}<extra>%{{fullData.name}}</extra>",
        cliponaxis=False,
        showlegend=side is None,
        **(beside if side else {}),
    )


def _set_ranges(layout: dict[str, Any], placed: Sequence[PricedLoss]) -> None:
    """Around the means and their intervals: none is cut that is not much wider than the candidates are apart."""
    means, costs = [each.loss.mean for each in placed], [each.cost for each in placed]
    spread = _spread(means)
    low, high = min(means) - MOST_SPREADS * spread, max(means) + MOST_SPREADS * spread
    ends = [end for each in placed for end in (each.loss.low, each.loss.high) if end is not None]
    within = [*means, *(min(max(end, low), high) for end in ends)]
    layout["yaxis"]["range"] = [min(within) - 0.35 * spread, max(within) + 0.35 * spread]
    layout["xaxis"]["range"] = [min(costs) - 0.15 * _spread(costs), max(costs) + 0.15 * _spread(costs)]


def _spread(values: Sequence[float]) -> float:
    return max(values) - min(values) or 0.02 * abs(values[0]) or 1.0
