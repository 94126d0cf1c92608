"""Figures of scaling laws and performance profiles, as Plotly figures in plain dicts; see `figures`.

law        loss over model size (or tokens), both logarithmic: points, curve with its 95 % band, predictions
residuals  measured by fitted loss, in per cent, over the same axis
profile    share of workloads within tau times the fastest candidate's time
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from dashboards.figures.base import Figure, figure, layout_of, open_ends, plain, transparent
from dashboards.palette import THEMES, Style, ThemeName, style
from dashboards.text import formats
from dashboards.text.formats import LOSS_IN_NATS
from orchestrator.analysis.laws.model import FORMS
from orchestrator.analysis.laws.records import CandidateFit, Estimate, FitReport, LawCurve, ScalingPoint
from orchestrator.analysis.profiles import ProfileReport
from orchestrator.analysis.targets import profile, time_ratios

NOT_FITTED = "Losses appear here once runs of several sizes have ended."
MOST_TICKS = 7


def law(report: FitReport, styles: Mapping[str, Style], theme: ThemeName, hidden: Sequence[str] = ()) -> Figure:
    """The losses of every candidate with its law and what the law predicts."""
    fits = [fit for fit in report.fits if fit.candidate not in hidden]
    axis = _axis(report)
    data: list[Any] = []
    for fit in fits:
        chosen = styles.get(fit.candidate) or style(fit.candidate)
        data += _curve_traces(fit, chosen, theme, axis)
        data += _point_traces(fit, chosen, theme, axis)
    layout = layout_of(theme, x_title=("parameters", "training tokens")[axis], y_title=f"{LOSS_IN_NATS} (log)")
    xs = [value for trace in data for value in trace["x"]]
    losses = [point.loss for fit in fits for point in fit.points] + _predicted(fits)
    _log_axis(layout["xaxis"], xs, _tick)
    losses += [end for fit in fits for curve in fit.curves for point in curve.points for end in _near_ends(point.loss)]
    _log_axis(layout["yaxis"], losses, lambda value: f"{value:.3g}", margin=0.12)
    intervals = [
        (
            (each.parameters, each.tokens)[axis],
            each.loss.low,
            each.loss.high,
            (styles.get(fit.candidate) or style(fit.candidate)).colour(theme),
        )
        for fit in fits
        for each in fit.predictions
    ]
    if "range" in layout["yaxis"]:
        data += open_ends(layout["yaxis"]["range"], intervals, log=True)
    layout["uirevision"] = report.form
    return figure(data, layout, theme, empty=NOT_FITTED)


def residuals(report: FitReport, styles: Mapping[str, Style], theme: ThemeName, hidden: Sequence[str] = ()) -> Figure:
    """How far each mean lies above or below its law."""
    axis = _axis(report)
    data: list[Any] = []
    for fit in report.fits:
        known = [(point, point.fitted) for point in fit.points if point.fitted]
        if fit.candidate in hidden or not known:
            continue
        chosen = styles.get(fit.candidate) or style(fit.candidate)
        data.append(
            _marks(fit.title, chosen, theme)
            | {
                "x": [_place(point, axis) for point, _ in known],
                "y": [100 * (point.loss / fitted - 1) for point, fitted in known],
                "hovertemplate": "%{y:+.2f} % at %{x:.3s}",
            }
        )
    layout = layout_of(theme, x_title=("parameters", "training tokens")[axis], y_title="measured relative to fitted, %")
    xs = [value for trace in data for value in trace["x"]]
    _log_axis(layout["xaxis"], xs, _tick)
    layout["yaxis"] |= {"zeroline": True, "zerolinecolor": THEMES[theme].muted, "zerolinewidth": 1}
    return figure(data, layout, theme, empty="Residuals appear here once a law has been fitted.")


def profile_curves(report: ProfileReport, by: str, styles: Mapping[str, Style], theme: ThemeName) -> Figure:
    """Each candidate's performance profile over tau, by `tokens` or `device_hours` to target."""
    ratios = time_ratios({row.candidate: [getattr(time, by) for time in row.times] for row in report.rows})
    data = []
    for row in report.rows:
        own = ratios[row.candidate]
        steps = sorted({1.0, report.largest_tau, *(each for each in own if each <= report.largest_tau)})
        chosen = styles.get(row.candidate) or style(row.candidate)
        data.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": plain(row.title),
                "x": steps,
                "y": [profile(own, tau) for tau in steps],
                "line": {"width": 2, "color": chosen.colour(theme), "dash": chosen.dash, "shape": "hv"},
                "hovertemplate": "%{y:.0%} of workloads within %{x:.2f}×",
                "showlegend": False,
            }
        )
    layout = layout_of(theme, x_title="tau: time relative to the fastest candidate", y_title="share of workloads")
    layout["xaxis"]["range"] = [1, report.largest_tau]
    layout["yaxis"] |= {"range": [-0.02, 1.05], "tickformat": ".0%"}
    return figure(data, layout, theme, empty="No candidate appears in every comparison.")


def _curve_traces(fit: CandidateFit, chosen: Style, theme: ThemeName, axis: int) -> list[Any]:
    colour = chosen.colour(theme)
    found: list[Any] = []
    for curve in fit.curves:
        x = [(point.parameters, point.tokens)[axis] for point in curve.points]
        found += _band(curve, x, colour)
        label = f" · {curve.label}" if curve.label else ""
        found.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": f"{plain(fit.title)}{plain(label)}",
                "x": x,
                "y": [point.loss.value for point in curve.points],
                "line": {"width": 1.8, "color": colour, "dash": chosen.dash},
                "hovertemplate": "%{y:.4f} at %{x:.3s}",
                "showlegend": False,
            }
        )
    return found


def _band(curve: LawCurve, x: list[int], colour: str) -> list[Any]:
    """The interval's two edges, filled between; nothing where there are too few runs for an interval."""
    bounds = [(point.loss.low, point.loss.high) for point in curve.points]
    if not all(low and high and low > 0 and math.isfinite(high) for low, high in bounds):
        return []
    quiet = {"type": "scatter", "mode": "lines", "hoverinfo": "skip", "showlegend": False, "x": x}
    edge = {"line": {"width": 0, "color": colour}}
    return [
        quiet | edge | {"y": [low for low, _ in bounds]},
        quiet | edge | {"y": [high for _, high in bounds], "fill": "tonexty", "fillcolor": transparent(colour, 0.12)},
    ]


def _point_traces(fit: CandidateFit, chosen: Style, theme: ThemeName, axis: int) -> list[Any]:
    measured = _marks(fit.title, chosen, theme) | {
        "x": [_place(point, axis) for point in fit.points],
        "y": [point.loss for point in fit.points],
        "customdata": [point.n for point in fit.points],
        "hovertemplate": "%{y:.4f} at %{x:.3s} · n = %{customdata}",
    }
    if not fit.predictions:
        return [measured]
    half = [each.loss for each in fit.predictions]
    predicted = _marks(f"{fit.title}, predicted", chosen, theme, hollow=True) | {
        "x": [(each.parameters, each.tokens)[axis] for each in fit.predictions],
        "y": [each.loss.value for each in fit.predictions],
        "hovertemplate": "%{y:.4f} predicted at %{x:.3s}",
    }
    if all(each.low is not None and each.high is not None for each in half):
        predicted["error_y"] = {
            "type": "data",
            "symmetric": False,
            "array": [(each.high or each.value) - each.value for each in half],
            "arrayminus": [each.value - (each.low or each.value) for each in half],
            "color": chosen.colour(theme),
            "thickness": 1.2,
            "width": 4,
        }
    return [measured, predicted]


def _marks(title: str, chosen: Style, theme: ThemeName, *, hollow: bool = False) -> dict[str, Any]:
    colour = chosen.colour(theme)
    symbol = f"{chosen.symbol}-open" if hollow else chosen.symbol
    return {
        "type": "scatter",
        "mode": "markers",
        "name": plain(title),
        "marker": {"size": 9, "symbol": symbol, "color": colour, "line": {"width": 1.6 if hollow else 0}},
        "showlegend": False,
    }


def _tick(value: float) -> str:
    """`300 k`, `1 M`: as `formats.compact`, without zeros that a round number does not need."""
    digits, _, unit = formats.compact(value).partition(" ")
    return f"{float(digits):g} {unit}".strip()


def _axis(report: FitReport) -> int:
    """0: over parameters; 1: over tokens, for laws in tokens alone."""
    return 1 if FORMS[report.form].variables == (1,) else 0


def _place(point: ScalingPoint, axis: int) -> int:
    return (point.parameters, point.tokens)[axis]


def _predicted(fits: Iterable[CandidateFit]) -> list[float]:
    """What the loss axis must hold of predictions: values, and ends of intervals that are not absurdly wide."""
    losses = [prediction.loss for fit in fits for prediction in fit.predictions]
    return [one for each in losses for one in (each.value, *_near_ends(each))]


def _near_ends(loss: Estimate) -> list[float]:
    """The ends of an interval that would not squeeze everything else; the others end at the border in an arrow."""
    return [end for end in (loss.low, loss.high) if end and 0.5 * loss.value < end < 2 * loss.value]


def _log_axis(axis: dict[str, Any], values: Sequence[float], text: Any, *, margin: float = 0.06) -> None:
    """A logarithmic axis over the values, with round ticks: Plotly's own are decades, which a law may not even span."""
    known = [float(value) for value in values if value and value > 0 and math.isfinite(value)]
    axis["type"] = "log"
    if not known:
        return
    low, high = math.log10(min(known)), math.log10(max(known))
    pad = max(margin * (high - low), 0.01)
    low, high = low - pad, high + pad
    ticks = log_ticks(10**low, 10**high)
    axis |= {"range": [low, high], "tickvals": ticks, "ticktext": [text(each) for each in ticks], "tickangle": 0}


def log_ticks(low: float, high: float) -> list[float]:
    """Round values on a logarithmic axis: 1, 2, 5 of each decade, or an even grid where it spans less than that."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for digits in ((1, 2, 5), (1, 3), (1,)):
        ticks = [digit * 10.0**decade for decade in decades for digit in digits]
        ticks = [each for each in ticks if low <= each <= high]
        if len(ticks) <= MOST_TICKS:
            break
    if len(ticks) >= 3:
        return ticks[:: math.ceil(len(ticks) / MOST_TICKS)]
    raw = (high - low) / 5
    base = 10.0 ** math.floor(math.log10(raw))
    step = next(base * digit for digit in (1, 2, 5, 10) if base * digit >= raw)
    return [float(f"{each:.6g}") for each in np.arange(math.ceil(low / step) * step, high, step)]
