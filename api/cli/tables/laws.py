"""Scaling laws and performance profiles as tables for people."""

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from api.cli.console import plain, plain_table, sentences
from api.cli.tables.comparison import two_lines
from dashboards.text import formats
from dashboards.text.answers import coefficient_names, memory_words, number
from orchestrator.analysis.laws.records import CandidateFit, Estimate, FitReport, Prediction
from orchestrator.analysis.profiles import ProfileReport, ProfileRow


def fit_view(report: FitReport) -> RenderableType:
    """Coefficients with intervals, then predictions and data efficiency where there are any, then every sentence."""
    parts: list[RenderableType] = [Text(report.formula, style="bold"), _coefficients(report)]
    if any(fit.predictions for fit in report.fits):
        parts += [
            Text("Predicted, not trained; activations come on top of the memory", style="bold"),
            _predictions(report),
        ]
    if any(fit.data_efficiency for fit in report.fits):
        parts += [Text("Data efficiency: D_eff / D against the baseline's law", style="bold"), _efficiencies(report)]
    if any(fit.drift for fit in report.fits):
        parts += [Text("The law's loss minus the baseline's", style="bold"), _loss_differences(report)]
    lines = [(fit.candidate, fit.verdict) for fit in report.fits] + [("note", note) for note in report.notes]
    return Group(*parts, sentences((subject, formats.sentence(line)) for subject, line in lines))


def profile_view(report: ProfileReport) -> RenderableType:
    """One line a candidate: its scores, and its time to target on each workload."""
    table = plain_table("optimizer", "score\n(tokens)", "score\n(device-h)")
    for time in report.rows[0].times if report.rows else ():
        table.add_column(plain(time.name)[:24], justify="right", overflow="fold")
    for row in report.rows:
        table.add_row(*map(Text, _profile_cells(row)))
    workloads = f"{report.workloads} workload{'s' if report.workloads != 1 else ''}"
    head = Text(f"Performance profile over {workloads}, tau in [1, {report.largest_tau:g}]")
    return Group(head, table, sentences(("note", formats.sentence(note)) for note in report.notes))


def estimate_text(estimate: Estimate | None, digits: int = 3) -> str:
    """`0.340` over its interval; wide ranges of magnitude in powers of ten."""
    if estimate is None:
        return formats.UNKNOWN
    if estimate.low is None or estimate.high is None:
        return number(estimate.value, digits)
    interval = f"[{number(estimate.low, digits)}, {number(estimate.high, digits)}]"
    return two_lines(number(estimate.value, digits), interval)


def _coefficients(report: FitReport) -> Table:
    names = coefficient_names(report)
    table = plain_table("optimizer", *names, "error", "largest left out", "points")
    for fit in report.fits:
        cells = [estimate_text(fit.coefficients.get(name)) for name in names]
        error = formats.UNKNOWN if fit.relative_error is None else f"{100 * fit.relative_error:.2g} %"
        points = f"{len(fit.points)}\n{sum(point.n for point in fit.points)} runs"
        table.add_row(*map(Text, (plain(fit.candidate), *cells, error, _largest_left_out(fit), points)))
    return table


def _largest_left_out(fit: CandidateFit) -> str:
    if fit.held_out is None:
        return formats.UNKNOWN
    return two_lines(formats.difference(fit.held_out.error), f"at {formats.compact(fit.held_out.parameters)}")


def _predictions(report: FitReport) -> Table:
    table = plain_table("optimizer", "size", "tokens", "loss", "state", "memory")
    for fit in report.fits:
        for each in fit.predictions:
            parameters = formats.compact(each.parameters)
            size = parameters if each.model is None else two_lines(each.model, f"{parameters} parameters")
            cells = (size, formats.compact(each.tokens), estimate_text(each.loss, 4), *_memory_cells(each))
            table.add_row(*map(Text, (plain(fit.candidate), *cells)))
    return table


def _loss_differences(report: FitReport) -> Table:
    table = plain_table("optimizer", "parameters", "tokens", "Δ loss")
    for fit in report.fits:
        for each in fit.loss_differences:
            cells = (formats.compact(each.parameters), formats.compact(each.tokens), estimate_text(each.difference, 4))
            table.add_row(*map(Text, (plain(fit.candidate), *cells)))
    return table


def _memory_cells(each: Prediction) -> tuple[str, str]:
    """State, and everything that training keeps; activations come on top."""
    if each.memory is None:
        return formats.UNKNOWN, formats.UNKNOWN
    state = two_lines(formats.size(each.memory.state_bytes.value), memory_words(each.memory))
    return state, formats.size(each.memory.total().value)


def _efficiencies(report: FitReport) -> Table:
    table = plain_table("optimizer", "parameters", "tokens", "D_eff / D")
    for fit in report.fits:
        for each in fit.data_efficiency:
            ratio = None if each.ratio is None else Estimate(value=each.ratio, low=each.low, high=each.high)
            cells = (formats.compact(each.parameters), formats.compact(each.tokens), estimate_text(ratio, 3))
            table.add_row(*map(Text, (plain(fit.candidate), *cells)))
    return table


def _profile_cells(row: ProfileRow) -> tuple[str, ...]:
    times = (
        f"{formats.compact(time.tokens)} tokens" if time.tokens is not None else "not reached" for time in row.times
    )
    return plain(row.candidate), f"{row.score_tokens:.3f}", f"{row.score_device_hours:.3f}", *times
