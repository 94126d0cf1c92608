"""What a step's peak is made of, as a figure; what optimizers keep, as bars in the table of the memory page. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dashboards.figures.base import (
    Figure,
    add_legend,
    bytes_axis,
    figure,
    horizontal_bars,
    layout_of,
    names_margin,
    plain,
)
from dashboards.palette import NEUTRALS, THEMES, Style, ThemeName
from dashboards.text import formats
from dashboards.view_state import ViewState
from orchestrator.records import CandidateRow, Comparison, RunRecord
from worker.records.footprint import Footprint, OptimizerFootprint
from worker.records.result import MemoryBreakdown

STATE = "optimizer state, in the optimizer's colour"
PARTS = (
    ("parameters_bytes", "parameters", ""),
    ("gradients_bytes", "gradients", "/"),
    ("optimizer_state_bytes", STATE, ""),
    ("activations_bytes", "activations", "."),
    ("other_bytes", "other", "x"),
)
"""Field of a breakdown, its name, its pattern: colours are optimizers', so parts are greys and told apart by more."""


@dataclass(frozen=True, kw_only=True)
class Bar:
    """One optimizer; widths are of 100, all rows on one scale."""

    one: OptimizerFootprint
    total_bytes: int | None
    share: float | None
    """State as a share of the baseline's."""
    parameters_width: float
    gradients_width: float
    state_width: float


def memory_breakdown(
    comparison: Comparison,
    styles: Mapping[str, Style],
    view: ViewState,
    theme: ThemeName,
    runs: Sequence[RunRecord],
) -> Figure:
    """What a step's peak is made of, a bar a candidate: of the run with the highest peak at its best rate."""
    rows = [(row, peak) for row, peak in breakdowns(comparison, runs) if row.candidate not in view.hidden][::-1]
    names = [plain(row.title) for row, _ in rows]
    own = [styles[row.candidate].colour(theme) for row, _ in rows]
    data = []
    for part, name, pattern in PARTS:
        bars = _part(name, names, [getattr(peak, part) for _, peak in rows], own, theme)
        look = {"shape": pattern, "size": 6, "solidity": 0.2, "fillmode": "overlay", "fgcolor": THEMES[theme].muted}
        bars["marker"]["pattern"] = look
        data.append(bars)
    totals = [peak.peak_bytes for _, peak in rows]
    most = 1.22 * max(totals, default=1)
    layout = layout_of(theme, x_title="peak tensor bytes of a step", y_title="")
    layout["barmode"] = "stack"
    add_legend(layout, traceorder="normal", itemclick=False, itemdoubleclick=False)
    layout["margin"] |= {"l": names_margin(names), "t": 46}
    layout["xaxis"] |= {"range": [0, most]} | bytes_axis(most)
    layout["yaxis"] |= {"showgrid": False, "ticks": ""}
    font = {"size": 11, "color": THEMES[theme].ink}
    layout["annotations"] = [
        {"x": size, "y": row, "text": formats.size(size), "showarrow": False, "xanchor": "left", "xshift": 6,
         "font": font}
        for row, size in zip(names, totals, strict=True)
    ]  # fmt: skip
    empty = "Each run records its memory breakdown in its second step."
    return figure(data if rows else [], layout, theme, empty=empty)


def breakdowns(comparison: Comparison, runs: Sequence[RunRecord]) -> list[tuple[CandidateRow, MemoryBreakdown]]:
    """The same as a table's rows, in the order of the leaderboard."""
    found = [(row, _highest(row, runs)) for row in comparison.rows]
    return [(row, peak) for row, peak in found if peak is not None]


def bars(footprint: Footprint) -> tuple[Bar, ...]:
    """The least memory first; what could not be counted last."""
    kept = footprint.parameter_bytes + footprint.gradient_bytes
    most = max((kept + one.state_bytes for one in footprint.optimizers if one.state_bytes is not None), default=1)
    made = (_bar(footprint, one, kept, most) for one in footprint.optimizers)
    return tuple(sorted(made, key=lambda bar: (bar.total_bytes is None, bar.total_bytes or 0)))


def blocks(footprint: Footprint) -> tuple[tuple[str, tuple[int | None, ...]], ...]:
    """(kind of block, its state's bytes under each optimizer), for a table with a column an optimizer."""
    kinds = dict.fromkeys(kind for one in footprint.optimizers for kind in one.state_by_block)
    counted: Sequence[OptimizerFootprint] = [one for one in footprint.optimizers if one.state_by_block]
    return tuple((kind, tuple(one.state_by_block.get(kind) for one in counted)) for kind in kinds)


def _part(name: str, rows: Sequence[str], sizes: Sequence[int], own: Sequence[str], theme: ThemeName) -> dict[str, Any]:
    """One part of every bar: grey, but for the optimizers' state."""
    colour = own if name == STATE else NEUTRALS[name][int(theme == "dark")]
    return horizontal_bars(rows, sizes, colour, name=name, hovertemplate=f"{name}: %{{x:,}} bytes<extra>%{{y}}</extra>")


def _bar(footprint: Footprint, one: OptimizerFootprint, kept: int, most: int) -> Bar:
    total = None if one.state_bytes is None else kept + one.state_bytes
    known = one.state_bytes is not None and footprint.baseline_bytes
    return Bar(
        one=one,
        total_bytes=total,
        share=(one.state_bytes or 0) / (footprint.baseline_bytes or 1) if known else None,
        parameters_width=round(100 * footprint.parameter_bytes / most, 2),
        gradients_width=round(100 * footprint.gradient_bytes / most, 2),
        state_width=round(100 * (one.state_bytes or 0) / most, 2),
    )


def _highest(row: CandidateRow, runs: Sequence[RunRecord]) -> MemoryBreakdown | None:
    best = row.best()
    chosen = frozenset(best.run_ids if best else ())
    found = [run.result.memory_breakdown for run in runs if run.id in chosen and run.result is not None]
    return max((one for one in found if one is not None), key=lambda one: one.peak_bytes, default=None)
