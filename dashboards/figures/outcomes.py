"""Figures: records and series → Plotly figures as plain dicts. Pure, so that pages, reports and notebooks share them.

The figure of loss curves has a file of its own, `curves`.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from dashboards.data.series import Series
from dashboards.figures.base import (
    Figure,
    axis,
    bar_width,
    bytes_axis,
    fade,
    figure,
    heading,
    layout_of,
    line,
    names_margin,
    plain,
)
from dashboards.palette import THEMES, Style, ThemeName
from dashboards.text import formats
from dashboards.text.formats import LOSS_IN_NATS
from dashboards.view_state import ViewState
from orchestrator.records import Comparison, RunRecord
from worker.records.result import Verdict

FEW_POINTS = 3
"""So few points of a run are drawn as marks."""
FEW_SEEDS = 4
"""So many tuning seeds are named in a figure."""
WIDE_TICKS, NARROW_TICKS = 10, 5
"""So many learning rates have room below the axis."""
FAR = 4.0
"""A diverged rate this many times above all others is drawn at the edge, lest it squeezes them together."""


def learning_rates(
    comparison: Comparison,
    runs: Sequence[RunRecord],
    styles: Mapping[str, Style],
    view: ViewState,
    theme: ThemeName,
    *,
    narrow: bool = False,
) -> Figure:
    """Final validation loss by learning rate: a line through the means, a small mark per seed, × where one diverged.

    Where a comparison tunes first, the line is dotted and its marks are hollow: it is of the tuning seeds, which chose
    the rate. The full mark is the mean of the compared seeds, which ran at that rate alone.
    """
    rows = [row for row in comparison.rows if row.candidate not in view.hidden]
    tuning_seeds = frozenset(comparison.tuning_seeds)
    data: list[Any] = []
    for row in rows:
        chosen, colour = styles[row.candidate], styles[row.candidate].colour(theme)
        means = sorted((one.lr, one.val_loss.mean) for one in row.learning_rates if one.val_loss is not None)
        mine = [run for run in runs if run.candidate == row.candidate]
        compared = [run for run in mine if run.seed not in tuning_seeds]
        if tuning_seeds:
            tried = [run for run in mine if run.seed in tuning_seeds]
            traces = [_tuning_line(row.title, means, colour, chosen, comparison.tuning_seeds)]
            traces += [_seed_marks(row.title, tried, colour, "tuning seed")] if len(tuning_seeds) > 1 else []
            mean = row.final.val_loss if row.final else None
            traces += [_mean_line(row.title, [(row.final.lr, mean.mean)], colour, chosen)] if row.final and mean else []
            traces += [_seed_marks(row.title, compared, colour)]
        else:
            traces = [_mean_line(row.title, means, colour, chosen), _seed_marks(row.title, compared, colour)]
        data += [fade(trace) for trace in traces] if view.fades(row.candidate, styles) else traces
    shown = [run for run in runs if run.candidate in {row.candidate for row in rows}]
    edge = _rate_edge(shown)
    data += _diverged_marks(shown, styles, theme, edge)
    layout = layout_of(theme, x_title="learning rate", y_title="final validation loss")
    ticks = _apart(sorted({run.lr for run in shown if run.lr <= edge}), NARROW_TICKS if narrow else WIDE_TICKS)
    layout["xaxis"] |= {
        "type": "log", "tickvals": ticks, "ticktext": [formats.rate(lr) for lr in ticks], "tickangle": 0,
    }  # fmt: skip
    if tuning_seeds:
        full, hollow = "filled: mean of the compared seeds", f"hollow: {_seed_words(comparison.tuning_seeds)}"
        layout["annotations"].append(heading(f"{full}{'<br>' if narrow else '; '}{hollow}", 0.0, 1.01, theme))
        layout["margin"] |= {"t": 44 if narrow else 30}
    ended = any(trace["x"] for trace in data)
    return figure(data if ended else [], layout, theme, empty="Finished runs will appear here.")


def state_memory(comparison: Comparison, styles: Mapping[str, Style], view: ViewState, theme: ThemeName) -> Figure:
    """Optimizer-state bytes as bars, with the model's own size as a dotted line to compare with."""
    rows = [row for row in comparison.rows if row.optimizer_state_bytes is not None]
    rows = [row for row in rows if row.candidate not in view.hidden][::-1]
    baseline = next((row.optimizer_state_bytes for row in comparison.rows if row.is_baseline), None)
    values = [row.optimizer_state_bytes or 0 for row in rows]
    bars = {
        "type": "bar",
        "orientation": "h",
        "x": values,
        "y": [plain(row.title) for row in rows],
        "text": [f"{formats.size(value)}{_share(value, baseline)}" for value in values],
        "textposition": "outside",
        "cliponaxis": False,
        "hovertemplate": "%{y}: %{x:,} bytes<extra></extra>",
        "marker": {"color": [styles[row.candidate].colour(theme) for row in rows], "cornerradius": 3},
        "width": bar_width(len(rows)),
    }
    layout = layout_of(theme, x_title="bytes of optimizer state", y_title="")
    layout["margin"] |= {"l": names_margin(row.title for row in rows), "r": 30}
    layout["xaxis"] |= {"range": [0, 1.5 * max(values, default=1)]} | bytes_axis(1.5 * max(values, default=1))
    layout["yaxis"] |= {"automargin": True, "showgrid": False, "ticks": ""}
    parameters = next((row.parameter_bytes for row in rows if row.parameter_bytes is not None), None)
    if parameters is not None and values and parameters <= 1.3 * max(values):
        _mark_parameters(layout, parameters, theme)
    return figure([bars] if rows else [], layout, theme, empty="Optimizer state is measured when a run finishes.")


def run_series(
    one: Series,
    style: Style,
    steps_total: int,
    theme: ThemeName,
    *,
    title: str = LOSS_IN_NATS,
    narrow: bool = False,
) -> Figure:
    """A run's own curves over its steps: losses above; learning rate, gradient norm and step time below them, beside
    each other or, where it is `narrow`, each below the other."""
    colour, muted = style.colour(theme), THEMES[theme].muted
    data = [
        line(one.steps, one.train_loss, "training loss, each step", muted, width=1) | {"opacity": 0.45},
        line(one.steps, one.smoothed, "training loss, smoothed", colour, width=1.5),
        _validation(one, style, colour),
        line(one.steps, one.lr, "learning rate", colour) | {"xaxis": "x2", "yaxis": "y2"},
        line(one.steps, one.grad_norm, "gradient norm", colour) | {"xaxis": "x3", "yaxis": "y3"},
        line(one.steps, 1000 * one.step_seconds, "step time, ms", colour) | {"xaxis": "x4", "yaxis": "y4"},
    ]
    layout = layout_of(theme, x_title="", y_title=title)
    layout["yaxis"] |= {"domain": [0.6 if narrow else 0.42, 1.0]}
    layout["xaxis"] |= {"range": [0, 1.015 * steps_total], "anchor": "y"}
    titles = ("learning rate", "gradient norm", "step time, ms")
    for place, title in enumerate(titles, start=2):
        left, low = (0.0, 0.18 * (4 - place)) if narrow else (0.36 * (place - 2), 0.0)
        right, high = (1.0, low + 0.11) if narrow else (left + 0.28, 0.24)
        layout[f"xaxis{place}"] = axis(theme, "" if narrow else "step") | {
            "domain": [left, right], "anchor": f"y{place}", "range": [0, 1.015 * steps_total], "nticks": 4,
        }  # fmt: skip
        layout[f"yaxis{place}"] = axis(theme, "") | {
            "domain": [low, high], "anchor": f"x{place}", "nticks": 3 if narrow else 4, "rangemode": "tozero",
            "exponentformat": "none",
        }  # fmt: skip
        layout["annotations"].append(heading(title, left, high + 0.01, theme))
    if np.count_nonzero(np.isfinite(one.train_loss)) <= FEW_POINTS:
        data = [each | {"mode": "lines+markers"} for each in data]  # a line of one point shows nothing
    return figure(data if one.steps.size else [], layout, theme, empty="This run has not reported a step yet.")


def _mean_line(title: str, means: Sequence[tuple[float, float]], colour: str, style: Style) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": plain(title),
        "x": [lr for lr, _ in means],
        "y": [mean for _, mean in means],
        "line": {"width": 2, "color": colour, "dash": style.dash},
        "marker": {"size": 8, "symbol": style.symbol, "color": colour},
        "hovertemplate": "%{y:.4f} at lr %{x}",
        "showlegend": False,
    }


def _tuning_line(
    title: str, means: Sequence[tuple[float, float]], colour: str, style: Style, seeds: Sequence[int]
) -> dict[str, Any]:
    """What chose the rate, so that nobody takes it for what is compared."""
    return _mean_line(title, means, colour, style) | {
        "line": {"width": 1.2, "color": colour, "dash": "dot"},
        "marker": {"size": 8, "symbol": f"{style.symbol}-open", "color": colour},
        "hovertemplate": f"%{{y:.4f}} at lr %{{x}}, {_seed_words(seeds)}",
    }


def _seed_words(seeds: Sequence[int]) -> str:
    """`tuning seed 0, used to choose the learning rate`."""
    numbers = ", ".join(map(str, seeds[:FEW_SEEDS])) + (" …" if len(seeds) > FEW_SEEDS else "")
    return f"tuning seed{'s' if len(seeds) > 1 else ''} {numbers}, used to choose the learning rate"


def _seed_marks(title: str, runs: Sequence[RunRecord], colour: str, noun: str = "seed") -> dict[str, Any]:
    ended = [(run.lr, run.result.final_val_loss, run.seed) for run in runs if run.result and not _diverged(run)]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": plain(title),
        "x": [lr for lr, _, _ in ended],
        "y": [value for _, value, _ in ended],
        "customdata": [seed for _, _, seed in ended],
        "marker": {"size": 6, "symbol": "circle-open", "color": colour, "line": {"width": 1.2}},
        "opacity": 0.75,
        "hovertemplate": f"%{{y:.4f}} · {noun} %{{customdata}}",
        "showlegend": False,
    }


def _diverged_marks(runs: Sequence[RunRecord], styles: Mapping[str, Style], theme: ThemeName, edge: float) -> list[Any]:
    """Runs that have no loss to be drawn at as × along the upper edge, each kind by its outcome: none is left out."""
    lost = [run for run in runs if _diverged(run)]
    words = dict.fromkeys(run.state_word() for run in lost)
    return [_marks(word, [run for run in lost if run.state_word() == word], styles, theme, edge) for word in words]


def _marks(
    word: str, lost: Sequence[RunRecord], styles: Mapping[str, Style], theme: ThemeName, edge: float
) -> dict[str, Any]:
    far = {run.lr for run in lost if run.lr > edge}
    return {
        "type": "scatter",
        "mode": "markers+text",
        "name": word,
        "x": [min(run.lr, edge) for run in lost],
        "y": [1.0] * len(lost),
        "yaxis": "y2",
        "text": _once(f"lr {formats.rate(run.lr)} → " if run.lr in far else "" for run in lost),
        "textposition": "middle left",
        "textfont": {"size": 11, "color": THEMES[theme].muted},
        "customdata": [f"{plain(run.candidate)} · lr {formats.rate(run.lr)} · seed {run.seed}" for run in lost],
        "marker": {
            "size": 9,
            "symbol": "x-thin",
            "line": {"width": 2.2, "color": [styles[run.candidate].colour(theme) for run in lost]},
        },
        "hovertemplate": f"{word}: %{{customdata}}<extra></extra>",
        "cliponaxis": False,
        "showlegend": False,
    }


def _apart(rates: Sequence[float], most: int) -> list[float]:
    """Of rising rates those that stand far enough from each other on a logarithmic axis for `most` labels."""
    chosen: list[float] = []
    for rate in rates:
        if not chosen or math.log(rate / chosen[-1]) >= math.log(rates[-1] / rates[0]) / most:
            chosen.append(rate)
    return chosen


def _once(labels: Iterable[str]) -> list[str]:
    """The labels, each only where it first stands: seeds of one rate lie on top of one another."""
    every = list(labels)
    return [label if every.index(label) == place else "" for place, label in enumerate(every)]


def _rate_edge(runs: Sequence[RunRecord]) -> float:
    """Where the learning-rate axis ends: a little beyond the largest rate that trained, or at the largest of all."""
    largest = max((run.lr for run in runs), default=1.0)
    trained = max((run.lr for run in runs if run.result and not _diverged(run)), default=largest)
    return largest if largest <= FAR * trained else 2 * trained


def _diverged(run: RunRecord) -> bool:
    return run.result is not None and (run.result.verdict is Verdict.DIVERGED or run.result.final_val_loss is None)


def _share(value: int, baseline: int | None) -> str:
    return f"  {formats.percent(value / baseline)}" if baseline else ""


def _mark_parameters(layout: dict[str, Any], parameters: int, theme: ThemeName) -> None:
    muted = THEMES[theme].muted
    layout["shapes"] = [
        {"type": "line", "x0": parameters, "x1": parameters, "yref": "paper", "y0": 0, "y1": 1,
         "line": {"color": THEMES[theme].line, "width": 2}, "layer": "below"}
    ]  # fmt: skip
    layout["annotations"].append(
        {"x": parameters, "y": 1, "yref": "paper", "yanchor": "bottom", "showarrow": False,
         "text": f"parameters {formats.size(parameters)}", "font": {"size": 11, "color": muted}}
    )  # fmt: skip


def _validation(one: Series, style: Style, colour: str) -> dict[str, Any]:
    """Marks joined from the first trained evaluation on, as in `curves`."""
    known = np.isfinite(one.val_loss) & (one.steps > 0)
    marks = {"mode": "lines+markers", "marker": {"size": 7, "symbol": style.symbol, "color": colour}}
    return line(one.steps[known], one.val_loss[known], "validation loss", colour, width=2) | marks
