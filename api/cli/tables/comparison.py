"""Records as tables for people. The comparison's table is the product's answer: `demo` and `compare` end with it.

Cells may have two lines (figure, then what it is of), so that the whole leaderboard fits 120 columns.
"""

from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from api.cli.console import plain, plain_table, sentences
from dashboards.text import formats
from dashboards.text.words import speed_words
from orchestrator.jobs import Outcome
from orchestrator.records import CandidateRow, Comparison, Conclusion, Difference, Interval

CHART_COLUMNS, CHART_LINES = 72, 11
"""Of the picture of loss against memory: it fits beside its axis into 80 columns."""


def comparison_table(comparison: Comparison) -> RenderableType:
    """The leaderboard, best first, with every verdict and note below it in full."""
    head = Text(plain(comparison.name), style="bold")
    if not comparison.complete:
        head.append("  (not complete: some runs have not ended)", style="yellow")
    lines = [(row.candidate, formats.sentence(row.verdict)) for row in comparison.rows]
    lines += [("note", formats.sentence(note)) for note in comparison.notes]
    return Group(head, leaderboard(comparison), sentences(lines))


def leaderboard(comparison: Comparison) -> Table:
    """One line a candidate: loss, difference, memory, time, verdict."""
    table = plain_table("optimizer")
    delta = f"Δ to {plain(comparison.baseline)[:16]}"
    hours = device_hours_heading(comparison.device)
    for column in ("best lr", "validation loss", delta, "state", "peak memory", "step\n(opt.)", hours):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("runs", overflow="fold")
    baseline = next((row for row in comparison.rows if row.is_baseline), None)
    for position, row in enumerate(comparison.rows):
        first = position == 0 and row.val_loss is not None and comparison.complete
        green = " green" if row.conclusion is Conclusion.BETTER else ""
        table.add_row(*_cells(row, baseline), style=f"bold{green}" if first else None)
    return table


def loss_memory_chart(comparison: Comparison) -> Text:
    """Loss (with its 95 % interval) against optimizer state, in characters; empty without two points.

    Below and to the left is better: ● is a mean over the seeds, │ its interval.
    """
    rows = [row for row in comparison.rows if row.val_loss is not None and row.optimizer_state_bytes is not None]
    spots = [_spot(row) for row in rows]
    if len(spots) < 2:
        return Text()
    lowest, highest = min(each.low for each in spots), max(each.high for each in spots)
    largest = max(each.state_bytes for each in spots)
    span = (highest - lowest) or 1.0
    canvas = [[" "] * CHART_COLUMNS for _ in range(CHART_LINES)]

    def line(loss: float) -> int:
        return round((highest - loss) / span * (CHART_LINES - 1))

    for each in spots:
        column = round(each.state_bytes / (largest or 1) * (CHART_COLUMNS - 1))
        for place in range(line(each.high), line(each.low) + 1):
            canvas[place][column] = "│"
        canvas[line(each.mean)][column] = "●"
        _write(canvas[line(each.mean)], column, each.name)
    width = len(formats.loss(highest))
    axis = {0: highest, CHART_LINES - 1: lowest}
    lines = [
        f"{formats.loss(axis[place]) if place in axis else '':>{width}} {'┤' if place in axis else '│'}{''.join(cells)}"
        for place, cells in enumerate(canvas)
    ]
    right = formats.size(largest)
    lines.append(f"{'':>{width}} └{'─' * CHART_COLUMNS}")
    lines.append(f"{'':>{width}}  0{right:>{CHART_COLUMNS - 1}}")
    title = f"{comparison.loss_name} against optimizer state: ● mean over seeds, │ 95 % interval"
    return Text("\n".join((f"\n{title}", *(each.rstrip() for each in lines))))


@dataclass(frozen=True, kw_only=True)
class Spot:
    """One candidate in a chart."""

    name: str
    state_bytes: int
    mean: float
    low: float
    high: float


def _spot(row: CandidateRow) -> Spot:
    loss = row.val_loss
    assert loss is not None
    assert row.optimizer_state_bytes is not None
    low, high = (loss.mean if edge is None else edge for edge in (loss.low, loss.high))
    return Spot(
        name=plain(row.candidate)[:24], state_bytes=row.optimizer_state_bytes, mean=loss.mean, low=low, high=high
    )


def _write(cells: list[str], column: int, name: str) -> None:
    """The name beside its mark: on the right where there is room, else on the left."""
    start = column + 2 if column + 2 + len(name) <= len(cells) else max(column - 1 - len(name), 0)
    for place, letter in enumerate(name, start=start):
        if place < len(cells) and cells[place] == " ":
            cells[place] = letter


def device_hours_heading(device: str | None) -> str:
    """`device-hours` with the kind of device: hours on a CPU are never called GPU-hours."""
    return formats.device_hours_title(device).lower().replace("hours", "h").replace(" ", "\n")


def _cells(row: CandidateRow, baseline: CandidateRow | None) -> tuple[Text, ...]:
    return tuple(
        Text(cell)
        for cell in (
            plain(row.candidate),
            _rate(row),
            _interval(row.val_loss),
            _difference(row),
            _state(row, baseline),
            two_lines(formats.size(row.peak_memory_bytes), row.peak_memory_kind or ""),
            _step(row),
            formats.hours(row.device_hours),
            outcomes_text(row.outcomes),
        )
    )


def two_lines(figure: str, of_what: str) -> str:
    """A figure over what it is of; one line where either is missing."""
    return f"{figure}\n{of_what}" if of_what and figure != formats.UNKNOWN else figure


def _rate(row: CandidateRow) -> str:
    words = (f"{row.extended_rates} added" if row.extended_rates else "", "at edge" if row.edge_of_grid else "")
    return two_lines(formats.rate(row.best_lr), "\n".join(filter(None, words)))


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
    return "\n".join(filter(None, (figure, _bounds(difference), speed_words(row))))


def _bounds(difference: Difference) -> str:
    if difference.low is None or difference.high is None:
        return ""
    return f"[{formats.difference(difference.low)}, {formats.difference(difference.high)}]"


def _state(row: CandidateRow, baseline: CandidateRow | None) -> str:
    if baseline is None or row.is_baseline:
        return formats.size(row.optimizer_state_bytes)
    return two_lines(formats.size(row.optimizer_state_bytes), _share(row, baseline))


def _share(row: CandidateRow, baseline: CandidateRow) -> str:
    if row.optimizer_state_bytes is None or not baseline.optimizer_state_bytes:
        return ""
    return formats.percent(row.optimizer_state_bytes / baseline.optimizer_state_bytes)


def _step(row: CandidateRow) -> str:
    inside = "" if row.optimizer_seconds is None else f"({formats.seconds(row.optimizer_seconds)})"
    return two_lines(formats.seconds(row.step_seconds), inside)


def outcomes_text(outcomes: dict[Outcome, int]) -> str:
    """What became of the runs of a candidate: `4 finished`."""
    lines = [f"{count} {outcome.value.replace('_', ' ')}" for outcome, count in outcomes.items() if count]
    return "\n".join(lines) or formats.UNKNOWN
