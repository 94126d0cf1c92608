"""Scaling laws and performance profiles as tables for people."""

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from api.cli.console import plain
from api.cli.tables.comparison import plain_table, two_lines
from dashboards.text import formats
from dashboards.text.answers import memory_words
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
    said = [(fit.candidate, fit.verdict) for fit in report.fits] + [("note", note) for note in report.notes]
    return Group(*parts, _sentences(said))


def profile_view(report: ProfileReport) -> RenderableType:
    """One line a candidate: its scores, and its time to target on each workload."""
    table = plain_table("optimizer", "score\n(tokens)", "score\n(device-h)")
    for time in report.rows[0].times if report.rows else ():
        table.add_column(plain(time.name)[:24], justify="right", overflow="fold")
    for row in report.rows:
        table.add_row(*map(Text, _profile_cells(row)))
    workloads = f"{report.workloads} workload{'s' if report.workloads != 1 else ''}"
    head = Text(f"Performance profile over {workloads}, tau in [1, {report.largest_tau:g}]")
    return Group(head, table, _sentences([("note", note) for note in report.notes]))


def estimate_text(estimate: Estimate | None, digits: int = 3) -> str:
    """`0.340` over its interval; wide ranges of magnitude in powers of ten."""
    if estimate is None:
        return formats.UNKNOWN
    if estimate.low is None or estimate.high is None:
        return _number(estimate.value, digits)
    return two_lines(
        _number(estimate.value, digits), f"[{_number(estimate.low, digits)}, {_number(estimate.high, digits)}]"
    )


def _coefficients(report: FitReport) -> Table:
    names = [name for name in ("E", "A", "alpha", "B", "beta") if any(name in fit.coefficients for fit in report.fits)]
    table = plain_table("optimizer", *names, "error", "largest left out", "points")
    for fit in report.fits:
        cells = [estimate_text(fit.coefficients.get(name)) for name in names]
        error = formats.UNKNOWN if fit.relative_error is None else f"{100 * fit.relative_error:.2g} %"
        points = f"{len(fit.points)}\n{sum(point.n for point in fit.points)} runs"
        table.add_row(*map(Text, (plain(fit.candidate), *cells, error, _held_out(fit), points)))
    return table


def _held_out(fit: CandidateFit) -> str:
    if fit.held_out is None:
        return formats.UNKNOWN
    return two_lines(formats.signed(fit.held_out.error), f"at {formats.compact(fit.held_out.parameters)}")


def _predictions(report: FitReport) -> Table:
    table = plain_table("optimizer", "size", "tokens", "loss", "state", "memory")
    for fit in report.fits:
        for each in fit.predictions:
            size = formats.compact(each.parameters) if each.model is None else two_lines(each.model, size_words(each))
            cells = (size, formats.compact(each.tokens), estimate_text(each.loss, 4), *_memory_cells(each))
            table.add_row(*map(Text, (plain(fit.candidate), *cells)))
    return table


def size_words(each: Prediction) -> str:
    """How many parameters a named model has."""
    return f"{formats.compact(each.parameters)} parameters"


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


def _sentences(lines: list[tuple[str, str]]) -> RenderableType:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(overflow="fold", max_width=24)
    table.add_column(overflow="fold")
    for name, sentence in lines:
        table.add_row(Text(plain(name), style="bold"), Text(plain(formats.sentence(sentence))))
    return Padding(table, (1, 0, 0, 0))


def _number(value: float, digits: int) -> str:
    return formats.sentence(f"{value:.{digits}f}" if 0.001 <= abs(value) < 1000 or value == 0 else f"{value:.2e}")
