"""What a loss costs: memory by its parts, loss over memory, loss over device-hours. Pure, like `figures`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from dashboards.figures.base import Figure, bar_width, bytes_axis, figure, layout_of, names_margin, open_ends, plain
from dashboards.palette import NEUTRALS, THEMES, Style, ThemeName
from dashboards.text import formats
from dashboards.view_state import ViewState
from orchestrator.records import CandidateRow, Comparison, RunRecord
from worker.records.result import MemoryBreakdown

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
    """The side of each mark at which its name stands, within the room, the same for page, file and print. Earlier marks
    choose first; None where every side is taken: such a mark is named in the figure's legend."""
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


Price = Literal["memory", "hours"]
STATE = "optimizer state, in the optimizer's colour"
PARTS = (
    ("parameters_bytes", "parameters", ""),
    ("gradients_bytes", "gradients", "/"),
    ("optimizer_state_bytes", STATE, ""),
    ("activations_bytes", "activations", "."),
    ("other_bytes", "other", "x"),
)
"""Field of a breakdown, its name, its pattern: colours are optimizers', so parts are greys and told apart by more."""
RIGHT_PIXELS = 84
"""The margin of loss over price: room for names beside the marks."""
MOST_SPREADS = 4.0
"""An interval that reaches further beyond the means, as one of two seeds does, would flatten them: it ends at the
border in an arrow that says how far it goes."""
PLOTS_PIXELS = {"wide": (480.0, 236.0), "narrow": (180.0, 236.0)}
"""Within its margins, on a desk and on a phone: what names must not be closer for. A wider one has more room."""


def memory_breakdown(
    comparison: Comparison,
    runs: Sequence[RunRecord],
    styles: Mapping[str, Style],
    view: ViewState,
    theme: ThemeName,
    *,
    title: str,
) -> Figure:
    """What a step's peak is made of, a bar a candidate: of the run with the highest peak at its best rate."""
    found = [(row, _highest(row, runs)) for row in comparison.rows if row.candidate not in view.hidden]
    rows = [(row, memory) for row, memory in found if memory is not None][::-1]
    own = [styles[row.candidate].colour(theme) for row, _ in rows]
    data = [
        _part(rows, part, name, own if name == STATE else NEUTRALS[name][int(theme == "dark")], pattern, theme)
        for part, name, pattern in PARTS
    ]
    layout = layout_of(theme, x_title=title, y_title="")
    layout["barmode"] = "stack"
    layout["showlegend"] = True
    layout["legend"] = {
        "orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "traceorder": "normal", "font": {"size": 11},
        "itemclick": False, "itemdoubleclick": False,
    }  # fmt: skip
    layout["margin"] |= {"l": names_margin(row.title for row, _ in rows), "t": 46}
    most = max((memory.peak_bytes for _, memory in rows), default=1)
    layout["xaxis"] |= {"range": [0, 1.22 * most]} | bytes_axis(1.22 * most)
    layout["yaxis"] |= {"showgrid": False, "ticks": ""}
    layout["annotations"] = [
        {"x": memory.peak_bytes, "y": plain(row.title), "text": formats.size(memory.peak_bytes), "showarrow": False,
         "xanchor": "left", "xshift": 6, "font": {"size": 11, "color": THEMES[theme].ink}}
        for row, memory in rows
    ]  # fmt: skip
    return figure(
        data if rows else [], layout, theme, empty="Each run records its memory breakdown in its second step."
    )


def breakdowns(comparison: Comparison, runs: Sequence[RunRecord]) -> list[tuple[CandidateRow, MemoryBreakdown]]:
    """The same as a table's rows, in the order of the leaderboard."""
    found = [(row, _highest(row, runs)) for row in comparison.rows]
    return [(row, memory) for row, memory in found if memory is not None]


def loss_by_price(
    comparison: Comparison,
    styles: Mapping[str, Style],
    view: ViewState,
    theme: ThemeName,
    price: Price,
    *,
    title: str,
    narrow: bool = False,
) -> Figure:
    """A mark a candidate at its loss and what that cost, with the loss's interval; a line joins the Pareto front, whose
    marks are the first to be named where marks crowd."""
    rows = [row for row in comparison.rows if row.candidate not in view.hidden and row.val_loss is not None]
    placed = [(row, cost) for row in rows if (cost := _cost(row, price)) is not None]
    x_title = "bytes of optimizer state" if price == "memory" else "device-hours per run at the best learning rate"
    layout = layout_of(theme, x_title=x_title, y_title=title)
    if price == "memory":
        layout["xaxis"] |= bytes_axis(1.3 * max((cost for _, cost in placed), default=1.0))
    layout["margin"] |= {"r": RIGHT_PIXELS}
    front = _known_front(placed) if price == "memory" else _front(placed)
    data: list[Any] = [_front_line(front, theme)] if len(front) > 1 else []
    _set_ranges(layout, placed)
    named = _named(placed, front, layout, PLOTS_PIXELS["narrow" if narrow else "wide"])
    data += [_mark(row, cost, styles[row.candidate], theme, price, named.get(row.candidate)) for row, cost in placed]
    data += open_ends(
        layout["yaxis"].get("range", (0.0, 1.0)),
        [
            (cost, row.val_loss.low, row.val_loss.high, styles[row.candidate].colour(theme))
            for row, cost in placed
            if row.val_loss is not None
        ],
    )
    if len(named) < len(placed):
        layout["showlegend"] = True
        layout["legend"] = {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "font": {"size": 11}}
        layout["margin"] |= {"t": 40}
    return figure(data if placed else [], layout, theme, empty="Candidates with a result will appear here.")


def _part(
    rows: Sequence[tuple[CandidateRow, MemoryBreakdown]],
    part: str,
    name: str,
    colour: str | list[str],
    pattern: str,
    theme: ThemeName,
) -> dict[str, Any]:
    return {
        "type": "bar",
        "orientation": "h",
        "name": name,
        "x": [getattr(memory, part) for _, memory in rows],
        "y": [plain(row.title) for row, _ in rows],
        "marker": {
            "color": colour,
            "pattern": {
                "shape": pattern,
                "size": 6,
                "solidity": 0.2,
                "fillmode": "overlay",
                "fgcolor": THEMES[theme].muted,
            },
        },
        "hovertemplate": f"{name}: %{{x:,}} bytes<extra>%{{y}}</extra>",
        "width": bar_width(len(rows)),
    }


def _highest(row: CandidateRow, runs: Sequence[RunRecord]) -> MemoryBreakdown | None:
    best = row.best()
    chosen = frozenset(best.run_ids if best else ())
    found = [run.result.memory_breakdown for run in runs if run.id in chosen and run.result is not None]
    return max((one for one in found if one is not None), key=lambda one: one.peak_bytes, default=None)


def _cost(row: CandidateRow, price: Price) -> float | None:
    return row.optimizer_state_bytes if price == "memory" else row.run_device_hours


def _known_front(placed: Sequence[tuple[CandidateRow, float]]) -> list[tuple[float, float]]:
    """The front of loss and memory that the leaderboard names, whatever is hidden; no unstable candidate is in it."""
    front = [(row, cost) for row, cost in placed if row.on_pareto_front]
    return sorted((cost, row.val_loss.mean) for row, cost in front if row.val_loss is not None)


def _front(placed: Sequence[tuple[CandidateRow, float]]) -> list[tuple[float, float]]:
    """(cost, loss) of those that nobody beats in both, the cheapest first."""
    front: list[tuple[float, float]] = []
    for row, cost in sorted(placed, key=lambda one: (one[1], one[0].val_loss.mean if one[0].val_loss else 0.0)):
        assert row.val_loss is not None
        if not front or row.val_loss.mean < front[-1][1]:
            front.append((cost, row.val_loss.mean))
    return front


def _front_line(front: Sequence[tuple[float, float]], theme: ThemeName) -> dict[str, Any]:
    return {
        "type": "scatter", "mode": "lines", "x": [cost for cost, _ in front], "y": [loss for _, loss in front],
        "line": {"shape": "hv", "width": 1, "dash": "dot", "color": THEMES[theme].muted}, "hoverinfo": "skip",
        "showlegend": False,
    }  # fmt: skip


def _named(
    placed: Sequence[tuple[CandidateRow, float]],
    front: Sequence[tuple[float, float]],
    layout: dict[str, Any],
    pixels: tuple[float, float],
) -> dict[str, str]:
    """Candidate → the side of its mark at which its name stands; without those whose name would cover something."""
    (left, right), (low, high) = layout["xaxis"].get("range", (0, 1)), layout["yaxis"].get("range", (0, 1))
    width, height = pixels
    firsts = sorted(placed, key=lambda one: one[0].val_loss is None or (one[1], one[0].val_loss.mean) not in front)
    marks = [
        Mark(
            name=row.title,
            x=width * (cost - left) / (right - left),
            y=height * (row.val_loss.mean - low) / (high - low) if row.val_loss else 0.0,
        )
        for row, cost in firsts
    ]
    found = sides(marks, Box(left=0, right=width + RIGHT_PIXELS, low=0, high=height))
    return {row.candidate: side for (row, _), side in zip(firsts, found, strict=True) if side is not None}


def _mark(
    row: CandidateRow, cost: float, style: Style, theme: ThemeName, price: Price, side: str | None
) -> dict[str, Any]:
    assert row.val_loss is not None
    colour = style.colour(theme)
    said = formats.size(cost) if price == "memory" else f"{formats.hours(cost)} h"
    name = {"text": [plain(row.title)], "textposition": side, "textfont": {"size": 11, "color": colour}}
    return {
        "type": "scatter",
        "mode": "markers+text" if side else "markers",
        "name": plain(row.title),
        "x": [cost],
        "y": [row.val_loss.mean],
        "error_y": {
            "type": "data", "array": [row.val_loss.half_width() or 0.0], "thickness": 1.2, "width": 4, "color": colour,
        },
        "marker": {"size": 10, "symbol": style.symbol, "color": colour},
        "hovertemplate": f"%{{y:.4f}} at {said}<extra>%{{fullData.name}}</extra>",
        "cliponaxis": False,
        "showlegend": side is None,
    } | (name if side else {})  # fmt: skip


def _set_ranges(layout: dict[str, Any], placed: Sequence[tuple[CandidateRow, float]]) -> None:
    """Around the means and their intervals: none is cut that is not much wider than the candidates are apart."""
    means = [row.val_loss.mean for row, _ in placed if row.val_loss is not None]
    if not means:
        return
    spread = _spread(means)
    margin = 0.35 * spread
    low, high = min(means) - MOST_SPREADS * spread, max(means) + MOST_SPREADS * spread
    ends = [
        end for row, _ in placed if row.val_loss for end in (row.val_loss.low, row.val_loss.high) if end is not None
    ]
    within = [*means, *(min(max(end, low), high) for end in ends)]
    layout["yaxis"]["range"] = [min(within) - margin, max(within) + margin]
    costs = [cost for _, cost in placed]
    layout["xaxis"]["range"] = [min(costs) - 0.15 * _spread(costs), max(costs) + 0.15 * _spread(costs)]


def _spread(values: Sequence[float]) -> float:
    return max(values) - min(values) or 0.02 * abs(values[0]) or 1.0
