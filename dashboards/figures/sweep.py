"""The figures of a sweep: losses over trials, parallel coordinates, importance. Records → Plotly figures, pure.

Plotly's own parallel coordinates draw by WebGL with code that is made while it runs, which the pages' policy forbids;
these are lines, so they obey the same theme and print as they look.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dashboards.data.reader import Snapshot
from dashboards.figures.base import (
    LETTER_PIXELS,
    ExperimentView,
    Figure,
    figure,
    labelled_bars,
    layout_of,
    names_margin,
    plain,
    trace,
    transparent,
)
from dashboards.palette import THEMES, Style, ThemeName
from dashboards.text.answers import outcome, value_text
from dashboards.text.formats import LOSS_IN_NATS
from orchestrator.kinds.search_spaces import Choice, Range, ends, share_of
from orchestrator.kinds.sweep import SearchedCandidate
from orchestrator.sweeps.records import SweepFinding, SweepReport, TrialRow
from orchestrator.sweeps.report import best_so_far, sweep_spec
from worker.records.result import Verdict

CLASSES = 6
"""Trials are drawn in so many shades, by their rank: more of them than this nobody tells apart."""
LOST = (Verdict.DIVERGED, Verdict.OUT_OF_MEMORY)
"""A trial that ended so has no place among the others; its × stands at the upper edge."""
CROWD = 1.35
"""Losses above the best one by more than this share of it are drawn at the upper edge: they would squeeze the rest."""
SLANT = 30
"""Degrees by which names of axes are turned where they would meet each other: upwards, each begins at its axis."""
MARGIN_RIGHT = 34
"""Of the figure of parallel coordinates: what the numbers beside the last axis need."""
LEAST_WIDTH = 250
"""Pixels between the first axis and the last one on a phone."""


def objective(report: SweepReport, styles: Mapping[str, Style], theme: ThemeName) -> Figure:
    """Loss over trials: filled marks ran the budget, open ones were stopped early, a line is the best so far."""
    top = _top(report.trials)
    newest = max((trial.number for trial in report.trials), default=0)
    data: list[Any] = []
    for finding in report.findings:
        style = styles[finding.candidate]
        mine = [trial for trial in report.trials if trial.candidate == finding.candidate]
        data.append(_best_line(finding, mine, newest, style, theme))
        data.append(_marks(finding, [trial for trial in mine if trial.objective is not None], style, theme, top))
        data.append(_marks(finding, [trial for trial in mine if trial.objective is None], style, theme, top))
    title = LOSS_IN_NATS if report.loss_unit else report.loss_name
    layout = layout_of(theme, x_title="trial", y_title=title)
    layout["xaxis"] |= {"range": [-0.7, report.trials_planned - 0.3], "tickformat": "d"}
    return figure(data, layout, theme, empty="Trials will appear here.")


def experiment_trials(view: ExperimentView) -> Figure:
    """The trials of one candidate of a sweep as parallel coordinates."""
    snapshot = view.snapshot
    candidate = parallel_candidate(snapshot, view.candidate)
    searched = next(each for each in sweep_spec(snapshot.experiment).candidates if each.name() == candidate)
    return parallel(sweep_report(snapshot), searched, snapshot.styles[candidate], view.theme)


def sweep_report(snapshot: Snapshot) -> SweepReport:
    """The report of a sweep's snapshot."""
    assert snapshot.sweep is not None, f"experiment {snapshot.experiment.id} is no sweep"
    return snapshot.sweep


def parallel_candidate(snapshot: Snapshot, wanted: str | None) -> str:
    """Whose parallel coordinates are drawn: spaces differ, so it is one candidate's at a time; the best one's first."""
    names = [finding.candidate for finding in sweep_report(snapshot).findings]
    return wanted if wanted in names else names[0]


def parallel(report: SweepReport, searched: SearchedCandidate, style: Style, theme: ThemeName) -> Figure:
    """Each trial a line through its hyperparameters to its loss; the better, the darker; dotted: stopped early."""
    ranges = searched.ranges()
    mine = [trial for trial in report.trials if trial.candidate == searched.name() and _loss(trial) is not None]
    losses = [loss for trial in mine if (loss := trial.objective) is not None]
    scale = (min(losses), min(max(losses), CROWD * min(losses))) if losses else (0.0, 1.0)
    ranked = sorted(mine, key=lambda trial: (trial.objective is None, _loss(trial)), reverse=True)
    data = [
        _lines(group, ranges, scale, style, theme, shade, dotted=dotted)
        for dotted in (True, False)
        for shade, group in _classes([trial for trial in ranked if (trial.objective is None) is dotted])
    ]
    layout = layout_of(theme, x_title="", y_title="")
    names = [*ranges, report.loss_name]
    layout["xaxis"] |= {
        "tickvals": list(range(len(names))), "ticktext": [plain(name) for name in names], "showgrid": True,
        "range": [-0.25, len(names) - 0.75], "side": "top", "tickfont": {"size": 12, "color": THEMES[theme].ink},
        "autotickangles": [0, -SLANT], "fixedrange": True,
    }  # fmt: skip
    # Each axis has a scale of its own, which stands beside it: dragging would move the lines away from their values.
    layout["yaxis"] |= {"visible": False, "range": [-0.12, 1.08], "fixedrange": True}
    layout["dragmode"] = False
    layout["margin"] |= {"t": 46, "b": 14, "l": 30, "r": _room_at_the_right(names)}
    layout["annotations"] = [*_scales(ranges, theme), *_loss_scale(len(ranges), scale, theme)]
    return figure(data, layout, theme, empty="Trials will appear here.")


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
    layout["xaxis"] |= {"range": [0, 1.15], "tickformat": ".0%"}
    layout["yaxis"] |= {"showgrid": False, "ticks": ""}
    few = "Importance requires two hyperparameters and eight trials of an optimizer."
    return figure([data] if bars else [], layout, theme, empty=few)


def _top(trials: Sequence[TrialRow]) -> float:
    """Where marks are cut: above it a trial is only known to be bad."""
    losses = [trial.objective for trial in trials if trial.objective is not None]
    losses = losses or [trial.last_val_loss for trial in trials if trial.last_val_loss is not None]
    return CROWD * min(losses) if losses else 1.0


def _loss(trial: TrialRow) -> float | None:
    return trial.last_val_loss if trial.objective is None else trial.objective


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


def _marks(
    finding: SweepFinding, trials: Sequence[TrialRow], style: Style, theme: ThemeName, top: float
) -> dict[str, Any]:
    shown = [(trial, _loss(trial)) for trial in trials if _loss(trial) is not None or trial.verdict in LOST]
    colour, symbols = style.colour(theme), [_symbol(trial, style) for trial, _ in shown]
    return trace(
        "markers",
        [trial.number for trial, _ in shown],
        [top if loss is None else min(loss, top) for _, loss in shown],
        name=plain(finding.title),
        customdata=[f"{_parameters(trial)}<br>{_ending(trial)}" for trial, _ in shown],
        marker={"size": 8, "symbol": symbols, "color": colour, "line": {"width": 1.4, "color": colour}},
        hovertemplate="trial %{x}: %{customdata}",
    )


def _symbol(trial: TrialRow, style: Style) -> str:
    if trial.objective is not None:
        return style.symbol
    return "x-thin" if trial.verdict in LOST else f"{style.symbol}-open"


def _parameters(trial: TrialRow) -> str:
    return plain(", ".join(f"{name} {value_text(value)}" for name, value in trial.parameters.items()))


def _ending(trial: TrialRow) -> str:
    loss = _loss(trial)
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
    trials: Sequence[TrialRow],
    ranges: Mapping[str, Range],
    scale: tuple[float, float],
    style: Style,
    theme: ThemeName,
    shade: float,
    *,
    dotted: bool,
) -> dict[str, Any]:
    x: list[float | None] = []
    y: list[float | None] = []
    words: list[str | None] = []
    for trial in trials:
        loss = _loss(trial)
        assert loss is not None
        spots = [share_of(domain, trial.parameters[name]) for name, domain in ranges.items()]
        spots.append(min(max((loss - scale[0]) / ((scale[1] - scale[0]) or 1.0), 0.0), 1.05))
        x += [*range(len(spots)), None]
        y += [*spots, None]
        words += [f"trial {trial.number}: {_parameters(trial)}<br>{_ending(trial)}"] * len(spots) + [None]
    is_best = shade == 1.0 and not dotted
    colour = THEMES[theme].muted if dotted else style.colour(theme)
    shown = transparent(colour, 0.5 * shade if dotted else shade)
    return trace(
        "lines+markers",
        x,
        y,
        text=words,
        connectgaps=False,
        line={"width": 3.2 if is_best else 1.3, "color": shown, "dash": "dot" if dotted else "solid"},
        marker={"size": 7 if is_best else 4},
        hovertemplate="%{text}<extra></extra>",
    )


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
