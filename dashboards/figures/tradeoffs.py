"""Figures of trade-offs: loss over memory and over device-hours. Pure."""

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
from orchestrator.records import SECONDS_PER_HOUR, Comparison, Interval

Price = Literal["memory", "hours"]
FEWEST_HOURS = 0.1
"""The device-hours below which all times are in seconds."""
MOST_SPREADS = 4.0
"""An interval that reaches further beyond the means, as one of two seeds does, would flatten them: it ends at the
border in an arrow that says how far it goes."""


@dataclass(frozen=True, kw_only=True)
class PricedLoss:
    """A candidate's loss and what it cost."""

    candidate: str
    title: str
    colour: str
    symbol: str
    cost: float
    loss: Interval
    """The loss, with the interval of its difference to the baseline."""
    is_on_front: bool
    """Whether it is on the front of loss and memory, as the leaderboard says: regardless of hidden candidates, and
    without unstable ones."""


def loss_by_price(
    comparison: Comparison,
    styles: Mapping[str, Style],
    view: ViewState,
    theme: ThemeName,
    price: Price,
) -> Figure:
    """Return a mark a candidate at its loss and what that cost, with the interval of its difference; a line joins the
    Pareto front."""
    placed = [point for point in _priced_losses(comparison, styles, theme, price) if point.candidate not in view.hidden]
    is_short = price == "hours" and max((point.cost for point in placed), default=1.0) < FEWEST_HOURS
    if is_short:
        placed = [replace(point, cost=SECONDS_PER_HOUR * point.cost) for point in placed]
    time = f"device-{'seconds' if is_short else 'hours'} per run at the setting found"
    x_title = "bytes of optimizer state" if price == "memory" else time
    layout = layout_of(theme, x_title=x_title, y_title=final_loss_title(comparison))
    if not placed:
        empty = "No candidate has a result." if comparison.complete else "Candidates with a result will appear here."
        return figure([], layout, theme, empty=empty)
    _set_ranges(layout, placed)
    if price == "memory":
        low, high = layout["xaxis"]["range"]
        layout["xaxis"] |= bytes_axis(high, low)
    front = [point for point in placed if point.is_on_front] if price == "memory" else _front(placed)
    unit = "s" if is_short else "h"
    data = [_mark(point, price, unit) for point in placed]
    if len(front) > 1:
        steps = sorted((point.cost, point.loss.mean) for point in front)
        look = {"shape": "hv", "width": 1, "dash": "dot", "color": THEMES[theme].muted}
        data.insert(
            0, trace("lines", [cost for cost, _ in steps], [loss for _, loss in steps], line=look, hoverinfo="skip")
        )
    ends = [(point.cost, point.loss.low, point.loss.high, point.colour) for point in placed]
    add_legend(layout)
    return figure(data + open_ends(layout["yaxis"]["range"], ends), layout, theme, empty="")


def _priced_losses(
    comparison: Comparison, styles: Mapping[str, Style], theme: ThemeName, price: Price
) -> list[PricedLoss]:
    """Return the candidates with a loss and a known cost."""
    points, losses = [], comparison.losses_beside_baseline()
    for row in comparison.rows:
        cost = row.optimizer_state_bytes if price == "memory" else row.run_device_hours
        if row.candidate in losses and cost is not None:
            style = styles[row.candidate]
            points.append(
                PricedLoss(
                    candidate=row.candidate, title=row.title, colour=style.colour(theme), symbol=style.symbol,
                    cost=cost, loss=losses[row.candidate], is_on_front=row.on_pareto_front,
                )
            )  # fmt: skip
    return points


def _front(placed: Sequence[PricedLoss]) -> list[PricedLoss]:
    """Return the candidates that no other beats in both, the cheapest first."""
    front: list[PricedLoss] = []
    for point in sorted(placed, key=lambda point: (point.cost, point.loss.mean)):
        if not front or point.loss.mean < front[-1].loss.mean:
            front.append(point)
    return front


def _mark(point: PricedLoss, price: Price, unit: str) -> dict[str, Any]:
    """Return the marks; `unit` is that of a cost in time."""
    time = formats.seconds(point.cost) if unit == "s" else formats.device_time(point.cost)
    cost = formats.size(point.cost) if price == "memory" else time
    front = f", {'on' if point.is_on_front else 'behind'} the front" if price == "memory" else ""
    return trace(
        "markers",
        [point.cost],
        [point.loss.mean],
        name=plain(point.title),
        error_y=whiskers([point.loss.mean], [(point.loss.low, point.loss.high)], point.colour),
        marker={"size": 10, "symbol": point.symbol, "color": point.colour},
        hovertemplate=f"%{{y:.4f}} at {cost}{front}<extra>%{{fullData.name}}</extra>",
        cliponaxis=False,
        showlegend=True,
    )


def _set_ranges(layout: dict[str, Any], placed: Sequence[PricedLoss]) -> None:
    """Set the axes' ranges around means and intervals; only intervals much wider than the spread of means are cut."""
    means, costs = [point.loss.mean for point in placed], [point.cost for point in placed]
    spread = _spread(means)
    low, high = min(means) - MOST_SPREADS * spread, max(means) + MOST_SPREADS * spread
    ends = [end for point in placed for end in (point.loss.low, point.loss.high) if end is not None]
    shown_losses = [*means, *(min(max(end, low), high) for end in ends)]
    layout["yaxis"]["range"] = [min(shown_losses) - 0.35 * spread, max(shown_losses) + 0.35 * spread]
    layout["xaxis"]["range"] = [min(costs) - 0.15 * _spread(costs), max(costs) + 0.15 * _spread(costs)]


def _spread(values: Sequence[float]) -> float:
    return max(values) - min(values) or 0.02 * abs(values[0]) or 1.0
