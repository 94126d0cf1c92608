"""The parts of a step's peak. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from dashboards.figures.base import (
    Figure,
    add_legend,
    bytes_axis,
    figure,
    horizontal_bars,
    layout_of,
    plain,
)
from dashboards.palette import NEUTRALS, THEMES, Style, ThemeName
from dashboards.text import formats
from dashboards.view_state import ViewState
from orchestrator.records import CandidateRow, Comparison, RunRecord
from worker.records.result import MemoryBreakdown

STATE = "optimizer state, in the optimizer's colour"
PARTS = (
    ("parameters_bytes", "parameters", ""),
    ("gradients_bytes", "gradients", "/"),
    ("optimizer_state_bytes", STATE, ""),
    ("activations_bytes", "activations", "."),
    ("other_bytes", "other", "x"),
)
"""Field of a breakdown, its name, its pattern: colours are optimizers', so parts are greys with patterns."""


def memory_breakdown(
    comparison: Comparison,
    styles: Mapping[str, Style],
    view: ViewState,
    theme: ThemeName,
    runs: Sequence[RunRecord],
) -> Figure:
    """Return the parts of a step's peak, a bar for each candidate: of the run with the highest peak at its best
    rate."""
    rows = [(row, peak) for row, peak in breakdowns(comparison, runs) if row.candidate not in view.hidden][::-1]
    names = [plain(row.title) for row, _ in rows]
    colours = [styles[row.candidate].colour(theme) for row, _ in rows]
    data = []
    for part, name, pattern in PARTS:
        bars = _part(name, names, [getattr(peak, part) for _, peak in rows], colours, theme)
        look = {"shape": pattern, "size": 6, "solidity": 0.2, "fillmode": "overlay", "fgcolor": THEMES[theme].muted}
        bars["marker"]["pattern"] = look
        data.append(bars)
    totals = [peak.peak_bytes for _, peak in rows]
    axis_end = 1.22 * max(totals, default=1)
    layout = layout_of(theme, x_title="peak tensor bytes of a step", y_title="")
    layout["barmode"] = "stack"
    add_legend(layout, traceorder="normal", itemclick=False, itemdoubleclick=False)
    layout["margin"] |= {"t": 46}
    layout["xaxis"] |= {"range": [0, axis_end]} | bytes_axis(axis_end)
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
    """Return the same as a table's rows, in the order of the leaderboard."""
    highest = []
    for row in comparison.rows:
        chosen = best.run_ids if (best := row.best()) else ()
        results = (run.result for run in runs if run.id in chosen and run.result is not None)
        if peaks := [result.memory_breakdown for result in results if result.memory_breakdown is not None]:
            highest.append((row, max(peaks, key=lambda peak: peak.peak_bytes)))
    return highest


def _part(
    name: str, rows: Sequence[str], sizes: Sequence[int], colours: Sequence[str], theme: ThemeName
) -> dict[str, Any]:
    """Return a part of every bar: grey, except for the optimizers' state."""
    colour = colours if name == STATE else NEUTRALS[name][int(theme == "dark")]
    return horizontal_bars(rows, sizes, colour, name=name, hovertemplate=f"{name}: %{{x:,}} bytes<extra>%{{y}}</extra>")
