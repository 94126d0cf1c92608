"""The figure of loss against memory: who is on the Pareto front of final loss and optimizer state."""

from collections.abc import Mapping
from typing import Any

from dashboards import formats
from dashboards.drawing import LOSS_IN_NATS, Figure, figure, layout_of, plain
from dashboards.palette import THEMES, Style, ThemeName
from orchestrator.records import CandidateRow, Comparison


def pareto(comparison: Comparison, styles: Mapping[str, Style], theme: ThemeName) -> Figure:
    """A mark for each candidate with its 95 % interval over seeds, and a line through those that nobody beats."""
    rows = [row for row in comparison.rows if row.val_loss is not None and row.optimizer_state_bytes is not None]
    front = sorted((row.optimizer_state_bytes or 0, _loss(row)) for row in rows if row.on_pareto_front)
    quiet = {"type": "scatter", "hoverinfo": "skip", "showlegend": False}
    data: list[Any] = [
        quiet
        | {
            "mode": "lines",
            "x": [size for size, _ in front],
            "y": [loss for _, loss in front],
            "line": {"width": 1.2, "color": THEMES[theme].muted, "dash": "dot", "shape": "hv"},
        }
    ]
    data += [_mark(row, styles[row.candidate], theme) for row in rows]
    title = LOSS_IN_NATS if comparison.loss_unit else comparison.loss_name
    layout = layout_of(theme, x_title="bytes of optimizer state", y_title=title)
    largest = max((row.optimizer_state_bytes or 0 for row in rows), default=1)
    layout["xaxis"] |= {"range": [0, 1.1 * largest], "tickformat": ".2~s", "ticksuffix": "B"}
    return figure(data if rows else [], layout, theme, empty="A mark for every candidate with a loss stands here.")


def _mark(row: CandidateRow, style: Style, theme: ThemeName) -> dict[str, Any]:
    colour, half = style.colour(theme), row.val_loss.half_width() if row.val_loss else None
    found: dict[str, Any] = {
        "type": "scatter",
        "mode": "markers",
        "name": plain(row.title),
        "x": [row.optimizer_state_bytes],
        "y": [_loss(row)],
        "marker": {"size": 10, "symbol": style.symbol, "color": colour},
        "hovertemplate": f"%{{y:.4f}} with {formats.size(row.optimizer_state_bytes)}",
        "showlegend": False,
    }
    if half is not None:
        found["error_y"] = {
            "type": "data", "symmetric": False, "array": [half], "arrayminus": [half], "color": colour,
            "thickness": 1.2, "width": 4,
        }  # fmt: skip
    return found


def _loss(row: CandidateRow) -> float:
    assert row.val_loss is not None
    return row.val_loss.mean
