"""The figures of a sweep: losses over trials, slices, importance. Records → Plotly figures, pure.

Axes of losses end where outliers would squeeze the rest; the figure counts the trials beyond, and its values and the
table of trials have all of them.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from dashboards.data.reader import Snapshot
from dashboards.figures.base import (
    ExperimentView,
    Figure,
    add_axes,
    figure,
    heading,
    horizontal_bars,
    layout_of,
    percent_ticks,
    plain,
    trace,
)
from dashboards.palette import Style, ThemeName
from dashboards.text.answers import outcome, value_text
from dashboards.text.formats import LOSS_IN_NATS
from orchestrator.kinds.sweep import SearchedCandidate
from orchestrator.sweeps.records import SweepFinding, SweepReport, TrialRow
from orchestrator.sweeps.report import best_so_far, sweep_spec
from orchestrator.tuning.search_spaces import Choice, grid, share_of
from worker.records.result import Verdict
from worker.words import pluralize

CROWD = 0.35
"""An axis of losses ends this share of the best one above it: further ones would squeeze the rest."""
LOST = (Verdict.DIVERGED, Verdict.OUT_OF_MEMORY)
"""A trial that ended so is marked ×."""
PAD, SHARES_PAD = 0.08, 0.06
"""The margin of an axis of losses and of one of shares beyond the drawing, as shares of it."""


def objective(report: SweepReport, styles: Mapping[str, Style], theme: ThemeName) -> Figure:
    """Draw loss over trials: filled marks ran the budget, open ones were stopped early, a line is the best so far, all
    of which the axis shows."""
    newest = max((trial.number for trial in report.trials), default=0)
    data: list[Any] = []
    lines: list[float] = []
    layout = layout_of(theme, x_title="trial", y_title=LOSS_IN_NATS if report.loss_unit else report.loss_name)
    layout["xaxis"] |= {"range": [-0.7, report.trials_planned - 0.3], "tickformat": "d"}
    for finding in report.findings:
        style = styles[finding.candidate]
        trials = [trial for trial in report.trials if trial.candidate == finding.candidate]
        best = _best_line(finding, trials, newest, style, theme)
        lines += best["y"]
        with_loss = [trial for trial in trials if latest_loss(trial) is not None]
        data.append(best)
        for is_complete in (True, False):
            chosen = [trial for trial in with_loss if (trial.objective is not None) is is_complete]
            data.append(
                _marks([trial.number for trial in chosen], chosen, style, style.colour(theme))
                | {"name": plain(finding.title)}
            )
    _limit_losses(layout, ("yaxis",), report.trials, lines, theme)
    return figure(data, layout, theme, empty="No trial has a loss yet.")


def slices(
    report: SweepReport, searched: SearchedCandidate, style: Style, theme: ThemeName, *, narrow: bool = False
) -> Figure:
    """Return a small plot for each hyperparameter: the loss of every trial over its value; open marks did not end."""
    ranges = searched.ranges()
    trials = [trial for trial in report.trials if trial.candidate == searched.name() and trial.parameters]
    with_loss = [trial for trial in trials if latest_loss(trial) is not None]
    column_count = min(len(ranges), 2 if narrow else 4)
    rows = -(-len(ranges) // column_count)
    layout = layout_of(theme, x_title="", y_title="")
    data: list[Any] = []
    for index, (name, domain) in enumerate(ranges.items()):
        row, column = divmod(index, column_count)
        left, upper = column / column_count, 1 - row / rows
        domains = (
            (left + 0.1 / column_count, left + 0.94 / column_count),
            (upper - (1.0 if rows == 1 else 0.84) / rows, upper - 0.1 / rows),
        )
        axes = add_axes(layout, theme, index + 1, *domains)
        # Each choice, or the ends and the middle of a range.
        values = domain.values if isinstance(domain, Choice) else grid(domain.model_copy(update={"points": 3}))
        layout[_axis_key(axes["xaxis"])] |= {
            "tickvals": [share_of(domain, value) for value in values],
            "ticktext": [plain(value_text(value)) for value in values],
            "showgrid": False,
            "range": [-SHARES_PAD, 1 + SHARES_PAD],
            "nticks": 0,
        }
        shares = [share_of(domain, trial.parameters[name]) for trial in with_loss]
        data.append(_marks(shares, with_loss, style, style.colour(theme)) | axes)
        layout["annotations"].append(heading(plain(name), domains[0][0], domains[1][1], theme))
    if len(ranges) < 2:
        del layout["yaxis2"]
    _limit_losses(layout, [_axis_key(trace["yaxis"]) for trace in data], trials, (), theme)
    return figure(data if with_loss else [], layout, theme, empty="No trial has a loss yet.")


def importance(report: SweepReport, styles: Mapping[str, Style], theme: ThemeName) -> Figure:
    """Return bars: the share of each hyperparameter, by candidate."""
    findings = [finding for finding in report.findings if finding.importance]
    bars = [(finding, share) for finding in findings for share in finding.importance][::-1]
    several = len(report.findings) > 1
    names = [plain(f"{share.parameter} · {finding.title}" if several else share.parameter) for finding, share in bars]
    colours = [styles[finding.candidate].colour(theme) for finding, _ in bars]
    texts = [f"{100 * share.share:.0f} %" for _, share in bars]
    data = horizontal_bars(
        names, [share.share for _, share in bars], colours, text=texts, textposition="outside", cliponaxis=False,
        hovertemplate="%{y}: %{text}<extra></extra>", marker={"color": colours, "cornerradius": 3},
    )  # fmt: skip
    layout = layout_of(theme, x_title="share of importance", y_title="")
    layout["xaxis"] |= {"range": [0, 1.15]} | percent_ticks(0.2)
    layout["yaxis"] |= {"showgrid": False, "ticks": ""}
    empty = "Importance requires two hyperparameters and eight trials of an optimizer."
    return figure([data] if bars else [], layout, theme, empty=empty)


def experiment_slices(view: ExperimentView) -> Figure:
    """Return the losses of one candidate's trials over each of its hyperparameters."""
    searched = searched_candidate(view.snapshot, view.candidate)
    style = view.snapshot.styles[searched.name()]
    return slices(view.snapshot.sweep, searched, style, view.theme, narrow=view.narrow)


def searched_candidate(snapshot: Snapshot, wanted: str) -> SearchedCandidate:
    """Return the candidate whose hyperparameters are drawn: spaces differ, so it is one at a time; the best one's
    first."""
    names = [finding.candidate for finding in snapshot.sweep.findings]
    name = wanted if wanted in names else names[0]
    return next(candidate for candidate in sweep_spec(snapshot.experiment).candidates if candidate.name() == name)


def latest_loss(trial: TrialRow) -> float | None:
    """Return the trial's objective; before its end its newest validation loss."""
    return trial.last_val_loss if trial.objective is None else trial.objective


def _limit_losses(
    layout: dict[str, Any], axes: Sequence[str], trials: Sequence[TrialRow], lines: Sequence[float], theme: ThemeName
) -> None:
    """Give axes of losses their range, which holds every line, and say how many trials it leaves out."""
    losses = [loss for trial in trials if (loss := latest_loss(trial)) is not None]
    best = min([trial.objective for trial in trials if trial.objective is not None] or losses, default=0.0)
    low, top = min(losses, default=0.0), max([min(max(losses, default=1.0), best + CROWD * abs(best)), *lines])
    pad = PAD * (top - low) or 0.01 * abs(top) or 1.0
    for axis in axes:
        layout[axis] |= {"range": [low - pad, top + pad]}
    hidden_count = sum(loss > top for loss in losses)
    lost = sum(trial.verdict in LOST and latest_loss(trial) is None for trial in trials)
    omissions = [f"{pluralize(hidden_count, 'trial')} above {top:.4g}"] * bool(hidden_count)
    omissions += [f"{pluralize(lost, 'trial')} without a loss"] * bool(lost)
    if omissions:
        layout["annotations"].append(heading(f"not shown: {', '.join(omissions)}", 0.0, 1.0, theme))
        layout["margin"] |= {"t": 30}


def _best_line(
    finding: SweepFinding, trials: Sequence[TrialRow], newest: int, style: Style, theme: ThemeName
) -> dict[str, Any]:
    """Return the line that reaches to the `newest` trial of any optimizer: the best stays the best until there is a
    better one."""
    pairs = [(float(t.number), best) for t, best in zip(trials, best_so_far(trials), strict=True) if best is not None]
    pairs += [(newest + 0.5, pairs[-1][1])] if pairs else []
    look = {"shape": "hv", "width": 1.8, "color": style.colour(theme), "dash": style.dash}
    numbers, losses = [number for number, _ in pairs], [best for _, best in pairs]
    hover = "best so far %{y:.4f}"
    return trace("lines", numbers, losses, name=plain(finding.title), line=look, hovertemplate=hover)


def _marks(x: Sequence[float], trials: Sequence[TrialRow], style: Style, colour: str) -> dict[str, Any]:
    """Return the losses of trials."""
    symbols = [
        style.symbol if trial.objective is not None else "x-thin" if trial.verdict in LOST else f"{style.symbol}-open"
        for trial in trials
    ]
    return trace(
        "markers",
        x,
        [latest_loss(trial) for trial in trials],
        customdata=[f"trial {trial.number}: {_about(trial)}" for trial in trials],
        marker={"size": 8, "symbol": symbols, "color": colour, "line": {"width": 1.4, "color": colour}},
        hovertemplate="%{customdata}<extra></extra>",
    )


def _about(trial: TrialRow) -> str:
    loss = latest_loss(trial)
    parameters = plain(", ".join(f"{name} {value_text(value)}" for name, value in trial.parameters.items()))
    ending = f"{'no loss' if loss is None else f'{loss:.4f}'}, {outcome(trial)}"
    return f"{parameters}<br>{ending}" + ("" if trial.objective is not None else f" at step {trial.steps}")


def _axis_key(name: str) -> str:
    """Return the layout's word for an axis that traces call `x2`: `xaxis2`."""
    return f"{name[0]}axis{name[1:]}"
