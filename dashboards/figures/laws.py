"""Figures of scaling laws, as Plotly figures in plain dicts; see `figures`.

law        loss over model size (or tokens), both logarithmic: points, curve with its 95 % band, predictions
residuals  measured by fitted loss, in per cent, over the same axis
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dashboards.figures.base import (
    Figure,
    band,
    figure,
    layout_of,
    open_ends,
    plain,
    round_step,
    say_above,
    trace,
    whiskers,
)
from dashboards.palette import THEMES, Style, ThemeName, style
from dashboards.text import formats
from dashboards.text.formats import LOSS_IN_NATS, page_sentence
from orchestrator.analysis.laws.model import FORMS
from orchestrator.analysis.laws.records import CandidateFit, Estimate, FitReport, Prediction, ScalingPoint
from orchestrator.analysis.laws.verdicts import too_few

NOT_FITTED = "Losses appear here once runs of several sizes have ended."
MOST_TICKS = 7
KEY_LETTERS = 56
"""The letters in a line above the plot that a phone has room for."""
AXES = ("parameters", "training tokens")


def law(report: FitReport, styles: Mapping[str, Style], theme: ThemeName, hidden: Sequence[str] = ()) -> Figure:
    """Return the losses of every candidate with its law and what the law predicts."""
    fits = [fit for fit in report.fits if fit.candidate not in hidden]
    axis = _axis(report)
    data: list[Any] = []
    intervals: list[tuple[float, float | None, float | None, str]] = []
    for fit in fits:
        chosen = styles.get(fit.candidate) or style(fit.candidate)
        colour = chosen.colour(theme)
        data += _curve_traces(fit, chosen, colour, axis) + _point_traces(fit, chosen, colour, axis)
        intervals += [(_size_on_axis(point, axis), point.low, point.high, colour) for point in fit.points]
        intervals += [(_size_on_axis(size, axis), size.loss.low, size.loss.high, colour) for size in fit.predictions]
    layout = layout_of(theme, x_title=AXES[axis], y_title=f"{LOSS_IN_NATS} (log)")
    _log_axis(layout["xaxis"], [value for trace in data for value in trace["x"]], _tick)
    predicted = [size.loss for fit in fits for size in fit.predictions]
    curves = [point.loss for fit in fits for curve in fit.curves for point in curve.points]
    losses = [point.loss for fit in fits for point in fit.points] + [estimate.value for estimate in predicted]
    measured = [Estimate(value=point.loss, low=point.low, high=point.high) for fit in fits for point in fit.points]
    # An interval that would squeeze everything else ends at the border, in an arrow.
    ends = ((loss.value, end) for loss in (*measured, *predicted, *curves) for end in (loss.low, loss.high))
    losses += [end for value, end in ends if end and 0.5 * value < end < 2 * value]
    _log_axis(layout["yaxis"], losses, lambda value: f"{value:.3g}", margin=0.12)
    if any(fit.points for fit in fits):
        say_above(layout, _key(fits, data), KEY_LETTERS, theme)
    if "range" in layout["yaxis"]:
        data += open_ends(layout["yaxis"]["range"], intervals, log=True)
    layout["uirevision"] = report.form
    return figure(data, layout, theme, empty=NOT_FITTED)


def residuals(report: FitReport, styles: Mapping[str, Style], theme: ThemeName, hidden: Sequence[str] = ()) -> Figure:
    """Return the distance of each mean from its law."""
    axis = _axis(report)
    data: list[Any] = []
    for fit in report.fits:
        fitted_points = [(point, point.fitted) for point in fit.points if point.fitted]
        if fit.candidate in hidden or not fitted_points:
            continue
        chosen = styles.get(fit.candidate) or style(fit.candidate)
        x = [_size_on_axis(point, axis) for point, _ in fitted_points]
        y = [100 * (point.loss / fitted - 1) for point, fitted in fitted_points]
        data.append(_marks(fit.title, x, y, chosen, chosen.colour(theme), "%{y:+.2f} % at %{x:.3s}"))
    layout = layout_of(theme, x_title=AXES[axis], y_title="measured relative to fitted, %")
    _log_axis(layout["xaxis"], [value for trace in data for value in trace["x"]], _tick)
    layout["yaxis"] |= {"zeroline": True, "zerolinecolor": THEMES[theme].muted, "zerolinewidth": 1}
    return figure(data, layout, theme, empty=_why_none(report))


def _why_none(report: FitReport) -> str:
    """Return the reason why there are no residuals; if candidates have reasons of their own, their verdicts say
    them."""
    own_reasons = (
        fit.no_law or too_few([point.cell() for point in fit.points if point.is_in_law], FORMS[report.form])
        for fit in report.fits
    )
    reasons = {page_sentence(reason).rstrip(".") for reason in own_reasons if reason}
    if not reasons:
        return "Residuals appear here once a law has been fitted."
    return f"No law is shown: {plain(*reasons) if len(reasons) == 1 else 'the verdicts say why'}."


def _key(fits: Sequence[CandidateFit], data: Sequence[dict[str, Any]]) -> str:
    """Return a caption of the drawing: `points: means over 2 seeds; lines: fitted law; hollow: predictions`."""
    numbers = sorted({point.n for fit in fits for point in fit.points})
    seeds = f"{numbers[0]} to {numbers[-1]}" if len(numbers) > 1 else f"{numbers[0]}"
    clauses = [f"points: means over {seeds} seeds" if numbers[-1] > 1 else "points: one seed each"]
    clauses[0] += " with 95\N{NO-BREAK SPACE}% intervals" * any(
        point.low is not None for fit in fits for point in fit.points
    )
    clauses += ["lines: fitted law"] if any(fit.curves for fit in fits) else []
    clauses += ["bands: 95\N{NO-BREAK SPACE}% intervals of the law"] if any("fill" in trace for trace in data) else []
    clauses += ["hollow: predictions"] if any(fit.predictions for fit in fits) else []
    return "; ".join(clauses)


def _curve_traces(fit: CandidateFit, chosen: Style, colour: str, axis: int) -> list[Any]:
    """Return each of its curves, with the band of its intervals unless there are too few runs for one."""
    traces: list[Any] = []
    look = {"width": 1.8, "color": colour, "dash": chosen.dash}
    for curve in fit.curves:
        x = [_size_on_axis(point, axis) for point in curve.points]
        ends = [(point.loss.low, point.loss.high) for point in curve.points]
        if all(low and high and low > 0 and math.isfinite(high) for low, high in ends):
            traces += band(x, [low for low, _ in ends], [high for _, high in ends], colour, 0.12)
        name = f"{plain(fit.title)} · {plain(curve.label)}" if curve.label else plain(fit.title)
        y = [point.loss.value for point in curve.points]
        traces.append(trace("lines", x, y, name=name, line=look, hovertemplate="%{y:.4f} at %{x:.3s}"))
    return traces


def _point_traces(fit: CandidateFit, chosen: Style, colour: str, axis: int) -> list[Any]:
    x, y = [_size_on_axis(point, axis) for point in fit.points], [point.loss for point in fit.points]
    measured = _marks(fit.title, x, y, chosen, colour, "%{y:.4f} at %{x:.3s} · n = %{customdata}")
    measured["customdata"] = [point.n for point in fit.points]
    if any(point.low is not None for point in fit.points):
        measured["error_y"] = whiskers(y, [(point.low, point.high) for point in fit.points], colour)
    if not fit.predictions:
        return [measured]
    x, y = [_size_on_axis(size, axis) for size in fit.predictions], [size.loss.value for size in fit.predictions]
    title, hover = f"{fit.title}, predicted", "%{y:.4f} predicted at %{x:.3s}"
    predicted = _marks(title, x, y, chosen, colour, hover, hollow=True)
    ends = [(size.loss.low, size.loss.high) for size in fit.predictions]
    if all(low is not None and high is not None for low, high in ends):
        predicted["error_y"] = whiskers(y, ends, colour)
    return [measured, predicted]


def _marks(
    title: str, x: list[int], y: list[float], chosen: Style, colour: str, hover: str, *, hollow: bool = False
) -> dict[str, Any]:
    symbol = f"{chosen.symbol}-open" if hollow else chosen.symbol
    look = {"size": 9, "symbol": symbol, "color": colour, "line": {"width": 1.6 if hollow else 0}}
    return trace("markers", x, y, name=plain(title), marker=look, hovertemplate=hover)


def _tick(value: float) -> str:
    """Return `300 k`, `1 M`: as `formats.compact`, without zeros that a round number does not need."""
    digits, _, unit = formats.compact(value).partition(" ")
    return f"{float(digits):g} {unit}".strip()


def _axis(report: FitReport) -> int:
    """Return 0 for an axis of parameters, 1 for one of tokens, for laws in tokens alone."""
    return 1 if FORMS[report.form].variables == (1,) else 0


def _size_on_axis(point: ScalingPoint | Prediction, axis: int) -> int:
    return (point.parameters, point.tokens)[axis]


def _log_axis(axis: dict[str, Any], values: Sequence[float], text: Any, *, margin: float = 0.06) -> None:
    """Return a logarithmic axis over the values, with round ticks: Plotly's are decades, which a law may not span."""
    positive = [float(value) for value in values if value and value > 0 and math.isfinite(value)]
    axis["type"] = "log"
    if not positive:
        return
    low, high = math.log10(min(positive)), math.log10(max(positive))
    pad = max(margin * (high - low), 0.01)
    low, high = low - pad, high + pad
    ticks = log_ticks(10**low, 10**high)
    axis |= {"range": [low, high], "tickvals": ticks, "ticktext": [text(tick) for tick in ticks], "tickangle": 0}


def log_ticks(low: float, high: float) -> list[float]:
    """Round values on a logarithmic axis: 1, 2, 5 of each decade, or an even grid where it spans less than that."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for digits in ((1, 2, 5), (1, 3), (1,)):
        ticks = [digit * 10.0**decade for decade in decades for digit in digits]
        ticks = [tick for tick in ticks if low <= tick <= high]
        if len(ticks) <= MOST_TICKS:
            break
    if len(ticks) >= 3:
        return ticks[:: math.ceil(len(ticks) / MOST_TICKS)]
    step = round_step((high - low) / 5)
    return [float(f"{tick:.6g}") for tick in np.arange(math.ceil(low / step) * step, high, step)]
