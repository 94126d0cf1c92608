"""The figures of a sweep: losses over trials, parallel coordinates, slices, a contour, importance.
Records → Plotly figures, pure.

Plotly's own parallel coordinates draw by WebGL with code that is made while it runs, which the pages' policy forbids;
these are lines, so they obey the same theme and print as they look.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from dashboards.data.reader import Snapshot
from dashboards.data.trials import CROWD, LOSS, Axes, Brush, SweepView, axes_of, drawn_trials, latest_loss
from dashboards.figures.base import (
    LETTER_PIXELS,
    ExperimentView,
    Figure,
    add_axes,
    axis,
    figure,
    heading,
    labelled_bars,
    layout_of,
    names_margin,
    percent_ticks,
    plain,
    shades,
    trace,
    transparent,
)
from dashboards.palette import THEMES, Style, ThemeName
from dashboards.text.answers import outcome, value_text
from dashboards.text.formats import LOSS_IN_NATS
from orchestrator.columns import Array
from orchestrator.kinds.sweep import SearchedCandidate
from orchestrator.sweeps.records import SweepFinding, SweepReport, TrialRow
from orchestrator.sweeps.report import best_so_far, sweep_spec
from orchestrator.tuning.search_spaces import Choice, Range, ends, grid, share_of
from worker.records.result import Verdict
from worker.words import pluralize

CLASSES = 6
"""Trials are drawn in so many shades, by their rank: more of them than this nobody tells apart."""
LEFT_OUT = 0.24
"""The shade of trials that a brush leaves out."""
FEWEST_FOR_CONTOUR = 4
CELLS = 24
"""Of a contour, along each of its axes."""
LEVELS = 8
LOST = (Verdict.DIVERGED, Verdict.OUT_OF_MEMORY)
"""A trial that ended so is marked ×; without a loss it has no place but the upper edge."""
PAD, SHARES_PAD = 0.08, 0.06
"""So far, as shares of what is drawn, an axis of losses and one of shares reach beyond it."""
SLANT = 30
"""Degrees by which names of axes are turned where they would meet each other: upwards, each begins at its axis."""
MARGIN_RIGHT = 34
"""Of the figure of parallel coordinates: what the numbers beside the last axis need."""
LEAST_WIDTH = 250
"""Pixels between the first axis and the last one on a phone."""


def objective(report: SweepReport, styles: Mapping[str, Style], theme: ThemeName) -> Figure:
    """Loss over trials: filled marks ran the budget, open ones were stopped early, a line is the best so far. The axis
    ends where outliers would squeeze the rest, but above every line; what is beyond it has a mark at its edge."""
    low, top = _loss_ends(report)
    newest = max((trial.number for trial in report.trials), default=0)
    data: list[Any] = []
    at_edge: list[TrialRow] = []
    title = LOSS_IN_NATS if report.loss_unit else report.loss_name
    layout = layout_of(theme, x_title="trial", y_title=title)
    layout["xaxis"] |= {"range": [-0.7, report.trials_planned - 0.3], "tickformat": "d"}
    layout["yaxis"] |= {"range": _padded(low, top)}
    for finding in report.findings:
        style = styles[finding.candidate]
        mine = [trial for trial in report.trials if trial.candidate == finding.candidate]
        shown = [trial for trial in mine if latest_loss(trial) is not None or trial.verdict in LOST]
        beyond = [trial for trial in shown if _is_beyond(trial, top)]
        within = [trial for trial in shown if not _is_beyond(trial, top)]
        data.append(_best_line(finding, mine, newest, style, theme))
        data.append(_marks(finding, [trial for trial in within if trial.objective is not None], style, theme))
        data.append(_marks(finding, [trial for trial in within if trial.objective is None], style, theme))
        data += [_marks(finding, beyond, style, theme) | {"mode": "none"}] if beyond else []
        layout["annotations"] += [
            _edge_mark(trial, style.colour(theme), x=trial.number, xref="x", y=1.0) for trial in beyond
        ]
        at_edge += beyond
    _say_beyond(layout, at_edge, top, theme)
    return figure(data, layout, theme, empty="Trials will appear here.")


def experiment_trials(view: ExperimentView) -> Figure:
    """The trials of one candidate of a sweep as parallel coordinates."""
    report, searched, style = _drawn_candidate(view)
    return parallel(report, searched, style, view.theme, view.trials.brushes)


def experiment_slices(view: ExperimentView) -> Figure:
    """The losses of one candidate's trials over each of its hyperparameters."""
    report, searched, style = _drawn_candidate(view)
    return slices(report, searched, style, view.theme, narrow=view.narrow)


def experiment_contour(view: ExperimentView) -> Figure:
    """The losses of one candidate's trials over two of its hyperparameters."""
    report, searched, _ = _drawn_candidate(view)
    return contour(report, searched, contour_pair(searched, view.trials), view.theme)


def _drawn_candidate(view: ExperimentView) -> tuple[SweepReport, SearchedCandidate, Style]:
    """Whose space is drawn."""
    searched = parallel_candidate(view.snapshot, view.trials.candidate)
    return sweep_report(view.snapshot), searched, view.snapshot.styles[searched.name()]


def sweep_report(snapshot: Snapshot) -> SweepReport:
    """The report of a sweep's snapshot."""
    assert snapshot.sweep is not None, f"experiment {snapshot.experiment.id} is no sweep"
    return snapshot.sweep


def parallel_candidate(snapshot: Snapshot, wanted: str) -> SearchedCandidate:
    """Whose space is drawn: spaces differ, so it is one candidate's at a time; the best one's first."""
    names = [finding.candidate for finding in sweep_report(snapshot).findings]
    name = wanted if wanted in names else names[0]
    return next(each for each in sweep_spec(snapshot.experiment).candidates if each.name() == name)


def contour_pair(searched: SearchedCandidate, view: SweepView) -> tuple[str, str] | None:
    """The two hyperparameters of the contour; None where there is only one."""
    names = list(searched.ranges())
    if len(names) < 2:
        return None
    across = view.across if view.across in names else next(name for name in names if name != view.up)
    return across, view.up if view.up in names and view.up != across else next(n for n in names if n != across)


def parallel(
    report: SweepReport,
    searched: SearchedCandidate,
    style: Style,
    theme: ThemeName,
    brushes: Sequence[Brush] = (),
) -> Figure:
    """Each trial a line through its hyperparameters to its loss; the better, the darker; dotted: stopped early. What
    the brushes leave out is grey."""
    axes = axes_of(report, searched)
    mine = drawn_trials(report, searched.name())
    kept = [trial for trial in mine if axes.keeps(trial, brushes)]
    ranked = sorted(kept, key=lambda trial: (trial.objective is None, latest_loss(trial)), reverse=True)
    others = [trial for trial in mine if trial not in kept]
    data = [_lines(others, axes, style, theme, LEFT_OUT, dotted=True)] if others else []
    data += [
        _lines(group, axes, style, theme, shade, dotted=dotted)
        for dotted in (True, False)
        for shade, group in _classes([trial for trial in ranked if (trial.objective is None) is dotted])
    ]
    layout = layout_of(theme, x_title="", y_title="")
    names = [*axes.ranges, report.loss_name]
    places = {name: place for place, name in enumerate((*axes.ranges, LOSS))}
    data += [_brush_line(places[one.axis], one, theme) for one in brushes if one.axis in places]
    layout["xaxis"] |= {
        "tickvals": list(range(len(names))), "ticktext": [plain(name) for name in names], "showgrid": True,
        "range": [-0.25, len(names) - 0.75], "side": "top", "tickfont": {"size": 12, "color": THEMES[theme].ink},
        "autotickangles": [0, -SLANT], "fixedrange": True,
    }  # fmt: skip
    # Each axis has a scale of its own, which stands beside it: dragging would move the lines away from their values.
    layout["yaxis"] |= {"visible": False, "range": [-0.12, 1.08], "fixedrange": True}
    layout["dragmode"] = False
    layout["margin"] |= {"t": 46, "b": 14, "l": 30, "r": _room_at_the_right(names)}
    scale = axes.best, axes.worst
    layout["annotations"] = [*_scales(axes.ranges, theme), *_loss_scale(len(axes.ranges), scale, theme)]
    if axes.worst > axes.best and (beyond := [trial for trial in mine if _is_beyond(trial, axes.worst)]):
        said = heading(_beyond_words(beyond, axes.worst, "past the end of the last axis"), 0.0, 0.0, theme)
        layout["annotations"].append(said | {"yanchor": "top", "yshift": -4})
        layout["margin"] |= {"b": 30}
    return figure(data, layout, theme, empty="Trials will appear here.")


def slices(
    report: SweepReport, searched: SearchedCandidate, style: Style, theme: ThemeName, *, narrow: bool = False
) -> Figure:
    """A small plot for each hyperparameter: the loss of every trial over its value; open marks did not end."""
    ranges = searched.ranges()
    mine = drawn_trials(report, searched.name())
    losses = [loss for trial in mine if (loss := latest_loss(trial)) is not None]
    low, top = min(losses, default=0.0), min(_top(mine), max(losses, default=1.0))
    beyond = [trial for trial in mine if _is_beyond(trial, top)]
    within = [trial for trial in mine if not _is_beyond(trial, top)]
    across = min(len(ranges), 2 if narrow else 4)
    rows = -(-len(ranges) // across)
    layout = layout_of(theme, x_title="", y_title="")
    colour = style.colour(theme)
    data: list[Any] = []
    for place, (name, domain) in enumerate(ranges.items()):
        row, column = divmod(place, across)
        left, upper = column / across, 1 - row / rows
        domains = (
            (left + 0.1 / across, left + 0.94 / across),
            (upper - (1.0 if rows == 1 else 0.84) / rows, upper - 0.1 / rows),
        )
        axes = add_axes(layout, theme, place + 1, *domains)
        number = "" if place == 0 else str(place + 1)
        layout[f"xaxis{number}"] |= _value_ticks(domain) | {"range": [-SHARES_PAD, 1 + SHARES_PAD], "nticks": 0}
        layout[f"yaxis{number}"] |= {"range": _padded(low, top)}
        data.append(_trial_marks(within, domain, name, style, colour) | axes)
        data += [_trial_marks(beyond, domain, name, style, colour) | axes | {"mode": "none"}] if beyond else []
        (first, last), (_, upper) = domains
        for trial in beyond:
            share = (share_of(domain, trial.parameters[name]) + SHARES_PAD) / (1 + 2 * SHARES_PAD)
            x = first + share * (last - first)
            layout["annotations"].append(_edge_mark(trial, colour, x=x, xref="paper", y=upper))
        layout["annotations"].append(heading(plain(name), domains[0][0], domains[1][1], theme))
    if len(ranges) < 2:
        del layout["yaxis2"]
    _say_beyond(layout, beyond, top, theme)
    return figure(data if mine else [], layout, theme, empty="Trials will appear here.")


def contour(report: SweepReport, searched: SearchedCandidate, pair: tuple[str, str] | None, theme: ThemeName) -> Figure:
    """The losses of trials that ran their budget over two hyperparameters, and between them a field: at each place the
    mean of the trials' losses by the inverse square of their distance (Shepard 1968), in steps as contours have.
    An outlier counts in it as the loss where the brightest step begins, and the heading says so: its own would make
    bright all that it is near.

    Cells are bars on a base, as in `probe_heatmap`: Plotly's own contours need inline styles, which the policy forbids.
    """
    layout = layout_of(theme, x_title="", y_title="") | {"bargap": 0, "barmode": "overlay"}
    ended = [trial for trial in drawn_trials(report, searched.name()) if trial.objective is not None]
    if pair is None or len(ended) < FEWEST_FOR_CONTOUR:
        few = f"A contour needs two hyperparameters and {FEWEST_FOR_CONTOUR} trials that ran their budget."
        return figure([], layout, theme, empty=few)
    ranges = searched.ranges()
    spots = np.array([[share_of(ranges[name], trial.parameters[name]) for name in pair] for trial in ended])
    top = _top(ended)
    losses = np.minimum([trial.objective for trial in ended if trial.objective is not None], top)
    cells = (np.arange(CELLS) + 0.5) / CELLS
    low, high = float(losses.min()), float(losses.max())
    data: list[Any] = []
    values = interpolate(spots, losses, np.array([(x, y) for x in cells for y in cells]))
    levels = np.floor((values - low) / ((high - low) or 1.0) * LEVELS).clip(0, LEVELS - 1)
    data.append(
        {
            "type": "bar",
            "x": [float(x) for x in cells for _ in cells],
            "y": [1 / CELLS] * CELLS**2,
            "base": [float(y) - 0.5 / CELLS for _ in cells for y in cells],
            "width": 1 / CELLS,
            "hoverinfo": "skip",
            "marker": {"color": shades(levels, 0, LEVELS - 1), "line": {"width": 0}},
        }
    )  # fmt: skip
    look = {"size": 9, "symbol": "circle", "color": "#ffffff", "line": {"width": 1.6, "color": "#101418"}}
    data.append(
        trace(
            "markers", [float(x) for x in spots[:, 0]], [float(y) for y in spots[:, 1]], marker=look,
            customdata=[f"trial {trial.number}: {_about(trial)}" for trial in ended],
            hovertemplate="%{customdata}<extra></extra>",
        )
    )  # fmt: skip
    for name, letter in zip(pair, "xy", strict=True):
        layout[f"{letter}axis"] |= axis(theme, plain(name)) | _value_ticks(ranges[name])
        layout[f"{letter}axis"] |= {"range": [0, 1], "showgrid": False}
    layout["margin"] |= {"t": 30}
    beyond = sum(_is_beyond(trial, top) for trial in ended)
    above = f"; {pluralize(beyond, 'trial')} above it, drawn as that" if beyond else ""
    layout["annotations"] = [heading(f"dark {low:.4g} to bright {high:.4g}{above}", 0.0, 1.0, theme)]
    return figure(data, layout, theme, empty="")


def interpolate(spots: Array, values: Array, places: Array) -> Array:
    """Means of `values` (n,) by the inverse square of the distance from `spots` (n, d), at each of `places` (m, d)."""
    squares = ((places[:, None, :] - spots[None, :, :]) ** 2).sum(axis=2)
    weights = 1 / (squares + (0.25 / CELLS) ** 2)
    found: Array = (weights * values).sum(axis=1) / weights.sum(axis=1)
    return found


def importance(report: SweepReport, styles: Mapping[str, Style], theme: ThemeName) -> Figure:
    """Bars: the share of each hyperparameter, by candidate."""
    findings = [finding for finding in report.findings if finding.importance]
    bars = [(finding, each) for finding in findings for each in finding.importance][::-1]
    several = len(report.findings) > 1
    names = [plain(f"{each.parameter} · {finding.title}" if several else each.parameter) for finding, each in bars]
    data = labelled_bars(
        names,
        [each.share for _, each in bars],
        [styles[finding.candidate].colour(theme) for finding, _ in bars],
        [f"{100 * each.share:.0f} %" for _, each in bars],
        "%{y}: %{text}<extra></extra>",
    )
    layout = layout_of(theme, x_title="share of importance", y_title="")
    layout["margin"] |= {"l": names_margin(names)}
    layout["xaxis"] |= {"range": [0, 1.15]} | percent_ticks(0.2)
    layout["yaxis"] |= {"showgrid": False, "ticks": ""}
    few = "Importance requires two hyperparameters and eight trials of an optimizer."
    return figure([data] if bars else [], layout, theme, empty=few)


def _top(trials: Sequence[TrialRow]) -> float:
    """Where an axis of losses may end: what is above it would squeeze the rest. The negative of a reward is below
    zero."""
    losses = [trial.objective for trial in trials if trial.objective is not None]
    losses = losses or [trial.last_val_loss for trial in trials if trial.last_val_loss is not None]
    return min(losses) + (CROWD - 1) * abs(min(losses)) if losses else 1.0


def _loss_ends(report: SweepReport) -> tuple[float, float]:
    """The lowest loss and the highest one that the axis holds: no outlier, but every line of the best so far."""
    losses = [loss for trial in report.trials if (loss := latest_loss(trial)) is not None]
    if not losses:
        return 0.0, 1.0
    names = {trial.candidate for trial in report.trials}
    lines = (best_so_far([trial for trial in report.trials if trial.candidate == name]) for name in names)
    tops = [best for line in lines for best in line if best is not None]
    return min(losses), max([min(_top(report.trials), max(losses)), *tops])


def _padded(low: float, top: float) -> list[float]:
    """The range of an axis around them."""
    pad = PAD * (top - low) or 0.01 * abs(top) or 1.0
    return [low - pad, top + pad]


def _is_beyond(trial: TrialRow, top: float) -> bool:
    """Whether its place is at the edge."""
    loss = latest_loss(trial)
    return loss is None or loss > top


def _edge_mark(trial: TrialRow, colour: str, *, x: float, xref: str, y: float) -> dict[str, Any]:
    """A mark at the upper edge, below `y`, for a loss beyond it. It is no point of a trace: a file of the figure's
    values would take the edge for the loss."""
    return {
        "text": "×" if trial.verdict in LOST else "△", "hovertext": f"trial {trial.number}: {_about(trial)}",
        "x": x, "xref": xref, "xanchor": "center", "y": y, "yref": "paper", "yanchor": "top", "showarrow": False,
        "font": {"size": 13, "color": colour},
    }  # fmt: skip


def _say_beyond(layout: dict[str, Any], beyond: Sequence[TrialRow], top: float, theme: ThemeName) -> None:
    if beyond:
        layout["annotations"].append(heading(_beyond_words(beyond, top, "at the upper edge"), 0.0, 1.0, theme))
        layout["margin"] |= {"t": 30}


def _beyond_words(beyond: Sequence[TrialRow], top: float, where: str) -> str:
    """`at the upper edge: 2 trials above 3.28`"""
    known = sum(latest_loss(trial) is not None for trial in beyond)
    said = [f"{pluralize(known, 'trial')} above {top:.4g}"] if known else []
    said += [f"{pluralize(len(beyond) - known, 'trial')} without a loss"] if len(beyond) > known else []
    return f"{where}: {', '.join(said)}"


def _best_line(
    finding: SweepFinding, trials: Sequence[TrialRow], newest: int, style: Style, theme: ThemeName
) -> dict[str, Any]:
    """It reaches to the `newest` trial of any optimizer: the best stays the best until there is a better one."""
    pairs = [(float(t.number), best) for t, best in zip(trials, best_so_far(trials), strict=True) if best is not None]
    pairs += [(newest + 0.5, pairs[-1][1])] if pairs else []
    look = {"shape": "hv", "width": 1.8, "color": style.colour(theme), "dash": style.dash}
    numbers, losses = [number for number, _ in pairs], [best for _, best in pairs]
    hover = "best so far %{y:.4f}"
    return trace("lines", numbers, losses, name=plain(finding.title), line=look, hovertemplate=hover)


def _marks(finding: SweepFinding, trials: Sequence[TrialRow], style: Style, theme: ThemeName) -> dict[str, Any]:
    colour, symbols = style.colour(theme), [_symbol(trial, style) for trial in trials]
    return trace(
        "markers",
        [trial.number for trial in trials],
        [latest_loss(trial) for trial in trials],
        name=plain(finding.title),
        customdata=[_about(trial) for trial in trials],
        marker={"size": 8, "symbol": symbols, "color": colour, "line": {"width": 1.4, "color": colour}},
        hovertemplate="trial %{x}: %{customdata}",
    )


def _symbol(trial: TrialRow, style: Style) -> str:
    if trial.objective is not None:
        return style.symbol
    return "x-thin" if trial.verdict in LOST else f"{style.symbol}-open"


def _about(trial: TrialRow) -> str:
    return f"{_parameters(trial)}<br>{_ending(trial)}"


def _parameters(trial: TrialRow) -> str:
    return plain(", ".join(f"{name} {value_text(value)}" for name, value in trial.parameters.items()))


def _ending(trial: TrialRow) -> str:
    loss = latest_loss(trial)
    known = "no loss" if loss is None else f"{loss:.4f}"
    return f"{known}, {outcome(trial)}" + ("" if trial.objective is not None else f" at step {trial.steps}")


def _classes(trials: Sequence[TrialRow]) -> Iterable[tuple[float, list[TrialRow]]]:
    """Groups of neighbouring ranks with their shade, from the faintest to the darkest; the best one stands alone."""
    if not trials:
        return
    *others, best = trials
    for place in range(CLASSES):
        group = others[len(others) * place // CLASSES : len(others) * (place + 1) // CLASSES]
        if group:
            yield 0.2 + 0.55 * place / (CLASSES - 1), group
    yield 1.0, [best]


def _lines(
    trials: Sequence[TrialRow], axes: Axes, style: Style, theme: ThemeName, shade: float, *, dotted: bool
) -> dict[str, Any]:
    x: list[float | None] = []
    y: list[float | None] = []
    words: list[str | None] = []
    for trial in trials:
        spots = list(axes.shares(trial).values())
        x += [*range(len(spots)), None]
        y += [*spots, None]
        words += [f"trial {trial.number}: {_about(trial)}"] * len(spots) + [None]
    is_best = shade == 1.0 and not dotted
    is_dotted = dotted and shade != LEFT_OUT
    colour = THEMES[theme].muted if dotted else style.colour(theme)
    shown = transparent(colour, 0.5 * shade if dotted else shade)
    return trace(
        "lines+markers",
        x,
        y,
        text=words,
        connectgaps=False,
        line={
            "width": 3.2 if is_best else 1.3,
            "color": shown,
            "dash": "dot" if is_dotted else "solid",
        },
        marker={"size": 7 if is_best else 4},
        hovertemplate="%{text}<extra></extra>",
    )


def _brush_line(place: int, brush: Brush, theme: ThemeName) -> dict[str, Any]:
    """The brushed piece of an axis."""
    ends = [brush.low / 100, brush.high / 100]
    look = {"width": 12, "color": transparent(THEMES[theme].ink, 0.28)}
    return trace("lines", [place, place], ends, line=look, hoverinfo="skip")


def _trial_marks(trials: Sequence[TrialRow], domain: Range, name: str, style: Style, colour: str) -> dict[str, Any]:
    """The losses over the hyperparameter of that name."""
    return trace(
        "markers",
        [share_of(domain, trial.parameters[name]) for trial in trials],
        [latest_loss(trial) for trial in trials],
        customdata=[f"trial {trial.number}: {_about(trial)}" for trial in trials],
        marker={
            "size": 7, "symbol": [_symbol(trial, style) for trial in trials], "color": colour,
            "line": {"width": 1.3, "color": colour},
        },
        hovertemplate="%{customdata}<extra></extra>",
    )  # fmt: skip


def _value_ticks(domain: Range) -> dict[str, Any]:
    """Values along an axis of shares: each choice; of a range its ends and its middle."""
    values = domain.values if isinstance(domain, Choice) else grid(domain.model_copy(update={"points": 3}))
    return {
        "tickvals": [share_of(domain, value) for value in values],
        "ticktext": [plain(value_text(value)) for value in values],
        "showgrid": False,
    }


def _room_at_the_right(names: Sequence[str]) -> int:
    """Names that slant, where they would meet each other, begin at their axes and lead to the right, past the last."""
    wide = [LETTER_PIXELS * len(name) for name in names]
    if max(wide) * len(names) <= LEAST_WIDTH:
        return MARGIN_RIGHT
    beyond = (
        math.cos(math.radians(SLANT)) * one - place * LEAST_WIDTH / len(names)
        for place, one in enumerate(reversed(wide))
    )
    return math.ceil(max(MARGIN_RIGHT, *beyond))


def _scales(ranges: Mapping[str, Range], theme: ThemeName) -> Iterable[dict[str, Any]]:
    """The ends of each axis, or each choice, beside it."""
    for place, domain in enumerate(ranges.values()):
        values = ends(domain)
        for value in values if isinstance(domain, Choice) else (values[0], values[-1]):
            yield _label(place, share_of(domain, value), value_text(value), theme)


def _loss_scale(place: int, scale: tuple[float, float], theme: ThemeName) -> Iterable[dict[str, Any]]:
    yield _label(place, 0.0, f"{scale[0]:.3f}", theme)
    if scale[1] > scale[0]:
        yield _label(place, 1.0, f"{scale[1]:.3f}", theme)


def _label(x: float, y: float, text: str, theme: ThemeName) -> dict[str, Any]:
    return {
        "x": x, "y": y, "text": plain(text), "showarrow": False, "yshift": -10 if y <= 0.02 else 0,
        "xanchor": "center" if y <= 0.02 else "left", "xshift": 0 if y <= 0.02 else 6,
        "font": {"size": 11, "color": THEMES[theme].muted},
        "bgcolor": transparent(THEMES[theme].surface, 0.8),
    }  # fmt: skip
