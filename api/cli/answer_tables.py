"""Return answers as tables: comparisons, scaling laws, sweeps, performance profiles, external runs.

`demo` and `compare` end with the table of a comparison. A cell may have several lines (a figure, then its unit or
range), so that the whole leaderboard fits 120 columns.
"""

import textwrap
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table as RichTable
from rich.text import Text

from api.cli.console import plain, sentences, text_table
from dashboards.text import formats, tables
from dashboards.text.answers import target_words
from dashboards.text.tables import Table
from dashboards.text.words import speed_words, unstable_runs
from orchestrator.analysis.laws.records import FitReport
from orchestrator.analysis.profiles import ProfileReport
from orchestrator.external_runs import ExternalJudgement
from orchestrator.records import CandidateRow, Comparison, Conclusion, Interval
from orchestrator.sweeps.records import SweepReport
from worker.words import pluralize

WORDS_COLUMNS = 20
"""The width of words in a column of figures, that of an interval."""
LEAST_COLUMNS = 4
"""The candidate, its rate, its loss and its difference to the baseline."""


def comparison_table(comparison: Comparison) -> RenderableType:
    """Return the leaderboard, best first, with every verdict and note below it in full."""
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
    """The table of candidates: loss, difference, memory, time, runs. On a console too narrow for all columns it leaves
    out the last ones and names them, because a squeezed table cannot be read."""

    comparison: Comparison

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        time = formats.device_time_title(self.comparison.device).lower().replace(" ", "\n", 1)
        figures = ("state", "lost\nruns", "peak memory", "step\n(opt.)", time)
        delta = f"Δ to {self.comparison.baseline[:16]}"
        titles = ["candidate", "lr", "validation loss", delta, *figures, "runs"]
        for count in range(len(titles), LEAST_COLUMNS - 1, -1):
            table = self._table(titles[:count])
            # As wide as it would like to be, which a narrow console's own measure would hide.
            if Measurement.get(console, options.update(max_width=1000), table).maximum <= options.max_width:
                break
        yield table
        if left_out := [title.replace("\n", " ") for title in titles[count:]]:
            yield Text(f"not shown in this narrow terminal: {', '.join(left_out)}; --json has all", style="dim")

    def _table(self, titles: list[str]) -> RichTable:
        rows = self.comparison.rows
        baseline = next((row for row in rows if row.is_baseline), None)
        figures = [title for title in titles[1:] if title != "runs"]
        table = text_table(titles, (_cells(row, baseline)[: len(titles)] for row in rows), figures)
        for column in table.columns[1:]:
            column.no_wrap = True
        if rows and rows[0].val_loss is not None and self.comparison.complete:
            table.rows[0].style = "bold green" if rows[0].conclusion is Conclusion.BETTER else "bold"
        return table


def _cells(row: CandidateRow, baseline: CandidateRow | None) -> tuple[str, ...]:
    return (
        row.candidate,
        two_lines(formats.rate(row.best_lr), "at edge" if row.edge_of_grid else ""),
        two_lines(_interval(row.val_loss), f"n = {row.val_loss.n}" if row.val_loss else ""),
        _difference(row),
        _state(row, baseline),
        two_lines(*unstable_runs(row)).replace(" to ", "–").replace(", ", "\n").replace(" against ", "\nagainst\n"),
        two_lines(formats.size(row.peak_memory_bytes), row.peak_memory_kind or ""),
        _step(row),
        formats.device_time(row.device_hours),
        "\n".join(f"{count} {outcome.value.replace('_', ' ')}" for outcome, count in row.outcomes.items() if count)
        or formats.UNKNOWN,
    )


def two_lines(figure: str, description: str) -> str:
    """Return a figure above its description; one line if either is missing."""
    return f"{figure}\n{description}" if description and figure != formats.UNKNOWN else figure


def _interval(interval: Interval | None) -> str:
    if interval is None:
        return formats.UNKNOWN
    half = interval.half_width()
    spread = "" if half is None else f" ± {formats.loss(half)}"
    return f"{formats.loss(interval.mean)}{spread}"


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


def fit_view(law: FitReport) -> RenderableType:
    """Return coefficients with intervals, then predictions if there are any, then every sentence."""
    lines = [(fit.candidate, formats.sentence(fit.verdict)) for fit in law.fits]
    lines += [("note", formats.sentence(note)) for note in law.notes]
    return Group(*_titled(tables.coefficients(law)), *_titled(tables.predictions(law)), sentences(lines))


def sweep_view(sweep: SweepReport) -> RenderableType:
    """Return the best trial of each optimizer, which hyperparameters mattered, every trial."""
    head = Text(plain(sweep.name), style="bold")
    head.append(f"  {sweep.algorithm}, {len(sweep.trials)} of {sweep.trials_planned} trials", style="dim")
    notes = sentences(("note", formats.sentence(note)) for note in sweep.notes)
    return Group(head, *_titled(tables.best_trials(sweep)), notes, *_titled(tables.trials(sweep)))


def _titled(table: Table) -> tuple[RenderableType, ...]:
    """Return a table under its caption; nothing if it has no rows."""
    if not table.rows:
        return ()
    return Text(f"\n{table.caption}".rstrip(), style="dim"), text_table(table.head, table.rows)


def profile_view(report: ProfileReport) -> RenderableType:
    """Return a line for each candidate: its scores, and its time to target on each workload."""
    targets = [f"{time.name[:24]}\n{target_words(time)}" for time in (report.rows[0].times if report.rows else ())]
    columns = ("optimizer", "score\n(tokens)", "score\n(device-h)", *targets)
    rows = [
        (
            row.candidate,
            f"{row.score_tokens:.3f}",
            f"{row.score_device_hours:.3f}",
            *("not reached" if t.tokens is None else f"{formats.compact(t.tokens)} tokens" for t in row.times),
        )
        for row in report.rows
    ]
    workloads = pluralize(report.workloads, "workload")
    head = Text(f"Performance profile over {workloads}, tau in [1, {report.largest_tau:g}]")
    notes = sentences(("note", formats.sentence(note)) for note in report.notes)
    return Group(head, text_table(columns, rows, columns[1:]), notes)


def judgement_view(judged: ExternalJudgement) -> RenderableType:
    """Return the objections, the table and the verdicts; of unchecked conditions only how many there are."""
    head = Text(plain(judged.experiment), style="bold")
    origin = f"  (logged or imported, not measured by the bench; {plain(judged.metric)}, lower is better)"
    head.append(origin, style="yellow")
    columns = ("candidate", "lr", judged.metric[:24], f"Δ to {judged.baseline[:16]}", "runs", "rates")
    rows = [
        (
            row.candidate,
            formats.rate(row.lr),
            _interval(row.loss),
            "baseline" if row.is_baseline else formats.difference(row.difference.mean if row.difference else None),
            "0" if row.loss is None else str(row.loss.n),
            str(len(row.learning_rates)),
        )
        for row in judged.rows
    ]
    table = text_table(columns, rows, columns[1:])
    lines = [("concern", formats.sentence(concern)) for concern in judged.concerns]
    verdicts = [(row.candidate, formats.sentence(row.verdict)) for row in judged.rows]
    verdicts.append(("not checked", f"{len(judged.unchecked)} conditions that no log shows; --json lists them."))
    verdicts += [("note", formats.sentence(note)) for note in judged.notes]
    return Group(head, *([sentences(lines), Text()] if lines else []), table, sentences(verdicts))
