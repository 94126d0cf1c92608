"""Answers as tables for people: comparisons, scaling laws, performance profiles, external runs. A comparison's table is
the product's answer: `demo` and `compare` end with it.

Cells may have several lines (figure, then what it is of), so that the whole leaderboard fits 120 columns.
"""

import textwrap
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from api.cli.console import plain, plain_table, sentences
from dashboards.text import formats
from dashboards.text.answers import coefficient_names, memory_words, number, target_words
from dashboards.text.words import speed_words, unstable_runs
from orchestrator.analysis.laws.records import CandidateFit, Estimate, FitReport
from orchestrator.analysis.profiles import ProfileReport
from orchestrator.external_runs import ExternalJudgement
from orchestrator.jobs import Outcome
from orchestrator.records import CandidateRow, Comparison, Conclusion, Interval
from worker.words import pluralize

CHART_COLUMNS, CHART_LINES = 72, 11
"""Of the picture of loss against memory: it fits beside its axis into 80 columns."""
WORDS_COLUMNS = 20
"""Of words in a column of figures: as wide as an interval."""
LEAST_COLUMNS = 4
"""The optimizer, its rate, its loss and its difference to the baseline."""


def comparison_table(comparison: Comparison) -> RenderableType:
    """The leaderboard, best first, with every verdict and note below it in full."""
    head = Text(plain(comparison.name), style="bold")
    if not comparison.complete:
        head.append("  (not complete: some runs have not ended)", style="yellow")
    lines = [(row.candidate, formats.sentence(row.verdict)) for row in comparison.rows]
    lines += [
        (f"{pair.candidate} − {pair.other}", formats.sentence(pair.verdict))
        for pair in comparison.pairs
        if pair.other != comparison.baseline  # of whom the rows tell
    ]
    lines += [("note", formats.sentence(note)) for note in comparison.notes]
    return Group(head, Leaderboard(comparison), sentences(lines))


@dataclass(frozen=True)
class Leaderboard:
    """One line a candidate: loss, difference, memory, time, runs. Where the console is too narrow for all columns the
    last ones are left out, and a line says which: a squeezed table cannot be read."""

    comparison: Comparison

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        titles = self._titles()
        for count in range(len(titles), LEAST_COLUMNS - 1, -1):
            table = self._table(titles[:count])
            # As wide as it would like to be, which a narrow console's own measure would hide.
            if Measurement.get(console, options.update(max_width=1000), table).maximum <= options.max_width:
                break
        yield table
        if left_out := [title.replace("\n", " ") for title in titles[count:]]:
            yield Text(f"left out, for want of room: {', '.join(left_out)}; --json has all", style="dim")

    def _titles(self) -> list[str]:
        delta = f"Δ to {plain(self.comparison.baseline)[:16]}"
        time = formats.device_time_title(self.comparison.device).lower().replace(" ", "\n", 1)
        figures = ("state", "not\nstable", "peak memory", "step\n(opt.)", time)
        return ["optimizer", "lr", "validation loss", delta, *figures, "runs"]

    def _table(self, titles: list[str]) -> Table:
        table = plain_table(titles[0])
        for title in titles[1:]:
            table.add_column(title, justify="left" if title == "runs" else "right", no_wrap=True)
        rows = self.comparison.rows
        baseline = next((row for row in rows if row.is_baseline), None)
        for position, row in enumerate(rows):
            first = position == 0 and row.val_loss is not None and self.comparison.complete
            green = " green" if row.conclusion is Conclusion.BETTER else ""
            table.add_row(*_cells(row, baseline)[: len(titles)], style=f"bold{green}" if first else None)
        return table


def loss_memory_chart(comparison: Comparison) -> Text:
    """Loss against optimizer state, in characters; empty without two points.

    Below and to the left is better: ● is a mean over the seeds, │ the 95 % interval of its difference to the baseline.
    """
    spots, losses = [], comparison.losses_beside_baseline()
    for row in comparison.rows:
        if (loss := losses.get(row.candidate)) is not None and row.optimizer_state_bytes is not None:
            low, high = (loss.mean if edge is None else edge for edge in (loss.low, loss.high))
            spots.append((row.optimizer_state_bytes, low, loss.mean, high, plain(row.candidate)[:24]))
    if len(spots) < 2:
        return Text()
    lowest, highest = min(low for _, low, *_ in spots), max(high for *_, high, _ in spots)
    largest = max(state_bytes for state_bytes, *_ in spots)
    span = (highest - lowest) or 1.0
    canvas = [[" "] * CHART_COLUMNS for _ in range(CHART_LINES)]

    def line(loss: float) -> int:
        return round((highest - loss) / span * (CHART_LINES - 1))

    for state_bytes, low, mean, high, name in spots:
        column = round(state_bytes / (largest or 1) * (CHART_COLUMNS - 1))
        for place in range(line(high), line(low) + 1):
            canvas[place][column] = "│"
        cells = canvas[line(mean)]
        cells[column] = "●"
        # The name beside its mark: on the right where there is room, else on the left.
        start = column + 2 if column + 2 + len(name) <= CHART_COLUMNS else max(column - 1 - len(name), 0)
        for place, letter in enumerate(name, start=start):
            if place < CHART_COLUMNS and cells[place] == " ":
                cells[place] = letter
    width = len(formats.loss(highest))
    axis = {0: highest, CHART_LINES - 1: lowest}
    lines = [
        f"{formats.loss(axis[place]) if place in axis else '':>{width}} {'┤' if place in axis else '│'}{''.join(cells)}"
        for place, cells in enumerate(canvas)
    ]
    right = formats.size(largest)
    lines.append(f"{'':>{width}} └{'─' * CHART_COLUMNS}")
    lines.append(f"{'':>{width}}  0{right:>{CHART_COLUMNS - 1}}")
    title = f"{comparison.loss_name} against optimizer state: ● mean, │ 95 % interval of difference"
    return Text("\n".join((f"\n{title}", *(each.rstrip() for each in lines))))


def _cells(row: CandidateRow, baseline: CandidateRow | None) -> tuple[Text, ...]:
    return tuple(
        Text(cell)
        for cell in (
            plain(row.candidate),
            _rate(row),
            _interval(row.val_loss),
            _difference(row),
            _state(row, baseline),
            two_lines(*unstable_runs(row)).replace(" to ", "–").replace(", ", "\n").replace(" against ", "\nagainst\n"),
            two_lines(formats.size(row.peak_memory_bytes), row.peak_memory_kind or ""),
            _step(row),
            formats.device_time(row.device_hours),
            outcomes_text(row.outcomes),
        )
    )


def two_lines(figure: str, of_what: str) -> str:
    """A figure over what it is of; one line where either is missing."""
    return f"{figure}\n{of_what}" if of_what and figure != formats.UNKNOWN else figure


def _rate(row: CandidateRow) -> str:
    return two_lines(formats.rate(row.best_lr), "at edge" if row.edge_of_grid else "")


def _interval(interval: Interval | None) -> str:
    if interval is None:
        return formats.UNKNOWN
    half = interval.half_width()
    spread = "" if half is None else f" ± {formats.loss(half)}"
    return f"{formats.loss(interval.mean)}{spread}\nn = {interval.n}"


def _difference(row: CandidateRow) -> str:
    if row.is_baseline:
        return "baseline"
    difference = row.difference
    if difference is None:
        return formats.UNKNOWN
    figure = f"{formats.difference(difference.mean)}  {formats.p_value(difference.p_value)}".rstrip()
    bounds = formats.interval(difference.low, difference.high, formats.difference)
    return "\n".join(filter(None, (figure, bounds, textwrap.fill(speed_words(row), WORDS_COLUMNS))))


def _state(row: CandidateRow, baseline: CandidateRow | None) -> str:
    if baseline is None or row.is_baseline:
        return formats.size(row.optimizer_state_bytes)
    share = ""
    if row.optimizer_state_bytes is not None and baseline.optimizer_state_bytes:
        share = formats.percent(row.optimizer_state_bytes / baseline.optimizer_state_bytes)
    return two_lines(formats.size(row.optimizer_state_bytes), share)


def _step(row: CandidateRow) -> str:
    inside = "" if row.optimizer_seconds is None else f"({formats.seconds(row.optimizer_seconds)})"
    return two_lines(formats.seconds(row.step_seconds), inside)


def outcomes_text(outcomes: dict[Outcome, int]) -> str:
    """What became of the runs of a candidate: `4 finished`."""
    lines = [f"{count} {outcome.value.replace('_', ' ')}" for outcome, count in outcomes.items() if count]
    return "\n".join(lines) or formats.UNKNOWN


def fit_view(report: FitReport) -> RenderableType:
    """Coefficients with intervals, then predictions and data efficiency where there are any, then every sentence."""
    parts: list[RenderableType] = [Text(report.formula, style="bold"), _coefficients(report)]
    for title, columns, rows in (
        ("Predicted, not trained; activations come on top of the memory", ("size", "tokens", "loss", "state", "memory"),
         _predictions),
        ("Data efficiency: D_eff / D against the baseline's law", ("parameters", "tokens", "D_eff / D"), _efficiencies),
        ("The law's loss minus the baseline's", ("parameters", "tokens", "Δ loss"), _loss_differences),
    ):  # fmt: skip
        table = _table_of_fits(report, columns, rows)
        if table.row_count:
            parts += [Text(title, style="bold"), table]
    lines = [(fit.candidate, fit.verdict) for fit in report.fits]
    lines += [("note", note) for note in report.notes]
    return Group(*parts, sentences((subject, formats.sentence(line)) for subject, line in lines))


def profile_view(report: ProfileReport) -> RenderableType:
    """One line a candidate: its scores, and its time to target on each workload."""
    table = plain_table("optimizer", "score\n(tokens)", "score\n(device-h)")
    for time in report.rows[0].times if report.rows else ():
        table.add_column(f"{plain(time.name)[:24]}\n{target_words(time)}", justify="right", overflow="fold")
    for row in report.rows:
        times = (
            f"{formats.compact(time.tokens)} tokens" if time.tokens is not None else "not reached" for time in row.times
        )
        cells = (plain(row.candidate), f"{row.score_tokens:.3f}", f"{row.score_device_hours:.3f}", *times)
        table.add_row(*map(Text, cells))
    workloads = pluralize(report.workloads, "workload")
    head = Text(f"Performance profile over {workloads}, tau in [1, {report.largest_tau:g}]")
    return Group(head, table, sentences(("note", formats.sentence(note)) for note in report.notes))


def estimate_text(estimate: Estimate | None, digits: int = 3) -> str:
    """`0.340` over its interval; wide ranges of magnitude in powers of ten."""
    if estimate is None:
        return formats.UNKNOWN
    interval = formats.interval(estimate.low, estimate.high, lambda value: number(value, digits))
    return two_lines(number(estimate.value, digits), interval or "no interval")


def _coefficients(report: FitReport) -> Table:
    names = coefficient_names(report)
    table = plain_table("optimizer", *names, "error", "largest left out", "points")
    for fit in report.fits:
        cells = [estimate_text(fit.coefficients.get(name)) for name in names]
        error = formats.UNKNOWN if fit.relative_error is None else f"{100 * fit.relative_error:.2g} %"
        numbers = [point.n for point in fit.points if point.is_in_law]
        points = f"{len(numbers)}\n{pluralize(sum(numbers), 'run')}"
        left_out = formats.UNKNOWN
        if fit.held_out is not None:
            size = f"at {formats.compact(fit.held_out.parameters)}"
            left_out = two_lines(formats.difference(fit.held_out.error), size)
        table.add_row(*map(Text, (plain(fit.candidate), *cells, error, left_out, points)))
    return table


def _table_of_fits(
    report: FitReport, columns: tuple[str, ...], rows: Callable[[CandidateFit], Iterable[tuple[str, ...]]]
) -> Table:
    """So many lines a candidate as `rows` has cells of it."""
    table = plain_table("optimizer", *columns)
    for fit in report.fits:
        for cells in rows(fit):
            table.add_row(*map(Text, (plain(fit.candidate), *cells)))
    return table


def _predictions(fit: CandidateFit) -> Iterator[tuple[str, ...]]:
    for each in fit.predictions:
        parameters = formats.compact(each.parameters)
        size = parameters if each.model is None else two_lines(each.model, f"{parameters} parameters")
        state = memory = formats.UNKNOWN  # state, and everything that training keeps; activations come on top
        if each.memory is not None:
            state = two_lines(formats.size(each.memory.state_bytes.value), memory_words(each.memory))
            memory = formats.size(each.memory.total_bytes())
        yield size, formats.compact(each.tokens), estimate_text(each.loss, 4), state, memory


def _loss_differences(fit: CandidateFit) -> Iterator[tuple[str, ...]]:
    for each in fit.loss_differences:
        found = Estimate(value=each.difference.mean, low=each.difference.low, high=each.difference.high)
        yield formats.compact(each.parameters), formats.compact(each.tokens), estimate_text(found, 4)


def _efficiencies(fit: CandidateFit) -> Iterator[tuple[str, ...]]:
    for each in fit.data_efficiency:
        ratio = None if each.ratio is None else Estimate(value=each.ratio, low=each.low, high=each.high)
        yield formats.compact(each.parameters), formats.compact(each.tokens), estimate_text(ratio)


def judgement_view(judged: ExternalJudgement) -> RenderableType:
    """Show the objections to the verdicts, the table, the verdicts, and the conditions that nobody checked."""
    head = Text(plain(judged.experiment), style="bold")
    head.append(f"  (logged or imported, not measured by the bench; {plain(judged.metric)})", style="yellow")
    table = plain_table(
        "candidate", "lr", plain(judged.metric)[:24], f"Δ to {plain(judged.baseline)[:16]}", "runs", "rates"
    )
    for row in judged.rows:
        loss, difference = row.loss, row.difference
        table.add_row(
            plain(row.candidate),
            formats.rate(row.lr),
            "—" if loss is None else formats.loss(loss.mean) + _half(loss.half_width()),
            "baseline" if row.is_baseline else "—" if difference is None else formats.difference(difference.mean),
            "0" if loss is None else str(loss.n),
            str(len(row.learning_rates)),
        )
    lines = [("concern", formats.sentence(each)) for each in judged.concerns]
    verdicts = [(row.candidate, formats.sentence(row.verdict)) for row in judged.rows]
    verdicts += [("not checked", formats.sentence(each)) for each in judged.unchecked]
    verdicts += [("note", formats.sentence(each)) for each in judged.notes]
    return Group(head, *([sentences(lines), Text()] if lines else []), table, sentences(verdicts))


def _half(half_width: float | None) -> str:
    return "" if half_width is None else f" ± {half_width:.4f}"
