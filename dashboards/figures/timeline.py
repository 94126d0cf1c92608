"""The figure of attempts over time: a bar an attempt, in as few lanes as ran at once. Pure."""

import heapq
import time
from collections.abc import Mapping, Sequence
from typing import Any

from dashboards.figures.base import ExperimentView, Figure, figure, layout_of, plain, trace
from dashboards.palette import HUES, Style, ThemeName
from dashboards.text import formats
from orchestrator.activity import AttemptSpan
from orchestrator.jobs import AttemptOutcome

BROKEN = frozenset({AttemptOutcome.BROKEN, AttemptOutcome.LOST})


def experiment_attempts(view: ExperimentView) -> Figure:
    """When the attempts of the snapshot's runs, which may be a cell's, held their slots, but for hidden candidates."""
    snapshot = view.snapshot
    spans = view.reader.runs.attempt_spans(snapshot.experiment.id)
    runs = {run.id for run in snapshot.runs}
    shown = [one for one in spans if one.run_id in runs and one.candidate not in view.state.hidden]
    return attempts_timeline(shown, snapshot.titles, snapshot.styles, time.time(), view.theme)


def attempts_timeline(
    spans: Sequence[AttemptSpan], titles: Mapping[str, str], styles: Mapping[str, Style], now: float, theme: ThemeName
) -> Figure:
    """When which attempt held its slot; a cross where one broke or was lost."""
    ordered = sorted(spans, key=lambda one: one.leased_at)
    lanes = lanes_of([(one.leased_at, one.ended_at or now) for one in ordered])
    number = max(lanes, default=0) + 1
    width = max(2.0, min(14.0, 190 / number))
    data: list[Any] = []
    for candidate, title in titles.items():
        mine = [(one, lane) for one, lane in zip(ordered, lanes, strict=True) if one.candidate == candidate]
        if mine:
            data.append(_bars(mine, title, styles[candidate].colour(theme), width, now))
    broken = [(one, lane) for one, lane in zip(ordered, lanes, strict=True) if one.outcome in BROKEN]
    if broken:
        data.append(_crosses(broken, HUES["red"][0 if theme == "light" else 1]))
    layout = layout_of(theme, x_title="", y_title="concurrent runs")
    layout["xaxis"] |= {"type": "date"}
    layout["margin"] |= {"b": 60}  # its numbers have two lines
    layout["yaxis"] |= {
        "range": [number + 0.5, 0.5],
        "dtick": max(1, number // 8),
        "tick0": 1,
    }
    return figure(data, layout, theme, empty="Attempts will appear here.")


def lanes_of(spans: Sequence[tuple[float, float]]) -> list[int]:
    """The lane of each span, from 0, in order of their beginnings: the lowest that is free again."""
    free: list[int] = []
    busy: list[tuple[float, int]] = []
    lanes = []
    for start, end in spans:
        while busy and busy[0][0] <= start:
            heapq.heappush(free, heapq.heappop(busy)[1])
        lane = heapq.heappop(free) if free else len(busy)
        heapq.heappush(busy, (end, lane))
        lanes.append(lane)
    return lanes


def _bars(mine: Sequence[tuple[AttemptSpan, int]], title: str, colour: str, width: float, now: float) -> dict[str, Any]:
    """One line that is broken between attempts: a thousand of them are one trace."""
    x: list[float | None] = []
    y: list[int | None] = []
    text: list[str] = []
    for one, lane in mine:
        end = one.ended_at or now
        x += [1000 * one.leased_at, 1000 * end, None]
        y += [lane + 1, lane + 1, None]
        text += 3 * [f"{plain(one.run_id)} attempt {one.attempt}, {formats.duration(end - one.leased_at)}"]
    look = {"width": width, "color": colour}
    return trace("lines", x, y, name=plain(title), text=text, line=look, hovertemplate="%{text}", opacity=0.85)


def _crosses(broken: Sequence[tuple[AttemptSpan, int]], colour: str) -> dict[str, Any]:
    return trace(
        "markers",
        [1000 * (one.ended_at or one.leased_at) for one, _ in broken],
        [lane + 1 for _, lane in broken],
        name="failed or lost",
        text=[plain((one.message or "")[:120]) for one, _ in broken],
        marker={"size": 10, "symbol": "x-thin", "line": {"width": 2.4, "color": colour}},
        hovertemplate="%{text}",
    )
