"""What templates show that no record says: sentences, tones and the geometry of small bars. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median_low
from typing import Literal, assert_never

from dashboards.palette import Style
from dashboards.text import formats
from dashboards.text.formats import LOSS_IN_NATS
from dashboards.view_state import ViewState
from optim import catalog
from orchestrator.external_runs import ExternalExperiment, ExternalRun
from orchestrator.jobs import ACTIONABLE, AttemptOutcome, Outcome, RunAction, RunStatus, outcome_of, state_word
from orchestrator.kinds.comparison import ComparisonSpec
from orchestrator.records import (
    AnyExperiment,
    AttemptRecord,
    CandidateRow,
    Comparison,
    Conclusion,
    DamagedExperiment,
    RunRecord,
    StateCounts,
)
from orchestrator.run_table.fields import FieldKind, RunField, Value
from orchestrator.specs.preview import DesignPower, PowerLimit
from worker.records.result import Verdict
from worker.words import pluralize

Tone = Literal["good", "live", "wait", "warn", "bad"]


@dataclass(frozen=True, kw_only=True)
class Chip:
    """A word about a state, with the tone that colours it."""

    text: str
    tone: Tone


@dataclass(frozen=True, kw_only=True)
class Segment:
    """One part of a bar that is 100 wide."""

    tone: Tone | Literal["over"]
    """`over`: ended, and neither good nor bad."""
    start: float
    width: float


@dataclass(frozen=True, kw_only=True)
class Whisker:
    """A mean with its interval on a scale of 0 to 100 that all rows share; an arrow where the interval leaves it."""

    middle: float
    low: float
    high: float
    cut_low: bool
    cut_high: bool


@dataclass(frozen=True, kw_only=True)
class LeaderboardLine:
    """One line of a leaderboard."""

    rank: int | None
    row: CandidateRow
    style: Style
    whisker: Whisker | None
    state_share: float | None
    """Optimizer-state bytes as a share of the baseline's."""
    runs_ended: int
    runs_total: int


def run_chip(run: RunRecord) -> Chip:
    """An ended run is known by its outcome, every other one by where it is."""
    if run.damaged is not None:
        return Chip(text="damaged", tone="bad")
    return state_chip(run.status, run.result.verdict if run.result else None)


def state_chip(status: RunStatus, verdict: Verdict | None = None) -> Chip:
    """The same of a state and a verdict."""
    return Chip(text=state_word(status, verdict), tone=tone(outcome_of(status, verdict) or status))


def event_word(status: RunStatus, run: RunRecord) -> str:
    """The state that an event of a run led to: where it is the last one, the run's outcome."""
    return run.state_word() if status is RunStatus.SUCCEEDED else state_word(status, None)


def attempt_word(attempt: AttemptRecord, run: RunRecord) -> str:
    """How an attempt ended; the one that brought the result ended as the run did."""
    if attempt.outcome is None:
        return "running"
    return run.state_word() if attempt.outcome is AttemptOutcome.SUCCEEDED else attempt.outcome.value


def tone(state: RunStatus | Outcome) -> Tone:
    """The colour of a run's state."""
    match state:
        case RunStatus.SUCCEEDED | Outcome.FINISHED:
            return "good"
        case RunStatus.LEASED | RunStatus.RUNNING:
            return "live"
        case RunStatus.QUEUED | RunStatus.PAUSED | RunStatus.PAUSING:
            return "wait"
        case RunStatus.CANCELLED | Outcome.CANCELLED | Outcome.STOPPED_EARLY:
            return "wait"
        case RunStatus.RETRY_WAIT | RunStatus.CANCELLING:
            return "warn"
        case RunStatus.FAILED | Outcome.FAILED | Outcome.DIVERGED | Outcome.OUT_OF_MEMORY:
            return "bad"
        case _:
            assert_never(state)


def run_actions(states: Iterable[RunStatus]) -> tuple[RunAction, ...]:
    """What can be asked of runs in these states: whatever would change at least one of them."""
    found = frozenset(states)
    return tuple(
        action
        for action in (RunAction.PAUSE, RunAction.RESUME, RunAction.RETRY, RunAction.CANCEL)
        if ACTIONABLE[action] & found
    )


def experiment_chip(counts: StateCounts, *, is_damaged: bool = False) -> Chip:
    """The state of a whole experiment in a word."""
    if is_damaged:
        return Chip(text="damaged", tone="bad")
    failed = counts.by_status.get(RunStatus.FAILED, 0)
    if counts.done() and failed:
        return Chip(text="done, with failures", tone="bad")
    if counts.done():
        stopped = counts.by_status.get(RunStatus.CANCELLED, 0)
        return Chip(text="cancelled", tone="wait") if stopped else Chip(text="done", tone="good")
    if counts.by_status.get(RunStatus.QUEUED, 0) == counts.total:
        return Chip(text="queued", tone="wait")
    if counts.by_status.get(RunStatus.PAUSED, 0) == counts.total - counts.ended():
        return Chip(text="paused", tone="wait")
    return Chip(text="running", tone="live")


def planned_counts(experiment: AnyExperiment) -> StateCounts:
    """The states of an experiment's runs out of all that there will be: a sweep's trials are added one by one."""
    return experiment.counts.model_copy(update={"total": experiment.runs_planned()})


def state_segments(counts: StateCounts) -> tuple[Segment, ...]:
    """The states of an experiment's runs as parts of one bar: the good first, what waits last."""
    order: tuple[Tone | Literal["over"], ...] = ("good", "bad", "over", "live", "warn", "wait")
    numbers = dict.fromkeys(order, 0)
    for state, number in counts.by_outcome().items():
        found = tone(state)
        numbers["over" if found == "wait" and isinstance(state, Outcome) else found] += number
    segments, start = [], 0.0
    for name in order:
        width = 100 * numbers[name] / max(1, counts.total)
        if width:
            segments.append(Segment(tone=name, start=round(start, 2), width=round(width, 2)))
        start += width
    return tuple(segments)


def leaderboard(comparison: Comparison, styles: dict[str, Style]) -> tuple[LeaderboardLine, ...]:
    """The leaderboard's lines; only candidates with a finite loss have a rank."""
    whiskers = _whiskers(comparison.rows)
    baseline = next((row.optimizer_state_bytes for row in comparison.rows if row.is_baseline), None)
    return tuple(
        LeaderboardLine(
            rank=place if row.val_loss is not None else None,
            row=row,
            style=styles[row.candidate],
            whisker=whiskers.get(row.candidate),
            state_share=_share(row.optimizer_state_bytes, baseline),
            runs_ended=sum(one.runs_ended for one in row.all_runs()),
            runs_total=sum(one.runs_total for one in row.all_runs()),
        )
        for place, row in enumerate(comparison.rows, start=1)
    )


def rate_words(row: CandidateRow) -> str:
    """What is to be said of the best learning rate: how far its grid was followed, and whether to an end."""
    added = f"{pluralize(row.extended_rates, 'rate')} added" if row.extended_rates else ""
    return ", ".join(filter(None, (added, "edge of grid" if row.edge_of_grid else "")))


def speed_up(row: CandidateRow) -> str:
    """A speed-up with its interval: `1.25× (1.18 to 1.31)`, `1.02× (below 1.06)`; `below 1.06×` of a candidate that
    did not get there. Empty where none is known, as of the baseline."""
    found = row.time_to_target and row.time_to_target.speed_up
    if not found:
        return ""
    match found.low, found.high:
        case float(low), float(high):
            interval = f"{low:.2f} to {high:.2f}"
        case float(low), _:
            interval = f"above {low:.2f}"
        case _, high:
            interval = f"below {high:.2f}"
    interval = interval.replace(" ", "\N{NO-BREAK SPACE}")
    return f"{interval}×" if found.mean is None else f"{found.mean:.2f}× ({interval})"


def speed_words(row: CandidateRow) -> str:
    """The speed-up, in words; where none is known, how many seeds reached the baseline's loss. Empty for the
    baseline."""
    if row.time_to_target is None or row.is_baseline:
        return ""
    if figure := speed_up(row):
        return f"speed-up {figure}"
    return f"baseline loss reached by {row.time_to_target.reached} of {pluralize(row.time_to_target.n, 'seed')}"


def unstable_runs(row: CandidateRow) -> tuple[str, str]:
    """How many of the judged runs diverged, ran out of memory or spiked (`2 of 10`), and the 95 % interval of their
    share with the p-value against the baseline's (`3 to 56 %, p = 0.5 against baseline`), where that says anything."""
    found = row.instability
    if found is None:
        return formats.UNKNOWN, ""
    interval = f"{100 * found.low:.0f} to {100 * found.high:.0f} %"
    p_value = formats.p_value(found.p_value)
    tested = f"{p_value} against baseline" if p_value not in ("", formats.p_value(1.0)) else ""
    return f"{found.lost} of {found.runs}", ", ".join(filter(None, (interval, tested)))


def difference_tone(conclusion: Conclusion) -> Literal["better", "worse", "as-good", ""]:
    """The colour of a difference: that of the verdict, and none where nothing is decided."""
    match conclusion:
        case Conclusion.BETTER:
            return "better"
        case Conclusion.WORSE:
            return "worse"
        case Conclusion.AS_GOOD:
            return "as-good"
        case _:
            return ""


def view_choices(view: ViewState, field: str, values: Sequence[tuple[str, str]]) -> list[tuple[str, str, bool]]:
    """(query, text, is it chosen) for each value that a field of the view may have."""
    return [(view.replace(**{field: value}).query(), text, getattr(view, field) == value) for value, text in values]


def leading_row(comparison: Comparison) -> CandidateRow | None:
    """The candidate with the lowest mean so far; None before the first result."""
    return next((row for row in comparison.rows if row.val_loss is not None), None)


def candidate_title(candidate: str, optimizer: str) -> str:
    """What a candidate is called everywhere: its label, else its optimizer's title."""
    entry = catalog.find(optimizer) if candidate == optimizer else None
    return entry.title if entry else candidate


def run_title(run: RunRecord | ExternalRun) -> str:
    """What tells a run from its neighbours; of an external one that it is one."""
    is_external = isinstance(run, ExternalRun)
    title = run.candidate if isinstance(run, ExternalRun) else candidate_title(run.candidate, run.optimizer)
    seed = formats.UNKNOWN if run.seed is None else run.seed
    return f"{title} · lr {formats.rate(run.lr)} · seed {seed}" + " · external" * is_external


def loss_title(comparison: Comparison) -> str:
    """What a figure's loss axis is called."""
    return LOSS_IN_NATS if comparison.loss_unit else comparison.loss_name


def headline(comparison: Comparison) -> str:
    """The answer so far, as a sentence to stand after the first candidate's name; empty before the first result."""
    first = leading_row(comparison)
    if first is None or first.val_loss is None:
        return ""
    half = first.val_loss.half_width()
    measured = formats.loss(first.val_loss.mean) + (
        f" ±\N{NO-BREAK SPACE}{formats.loss(half)}" if half is not None else ""
    )
    if not comparison.complete:
        return f"leads so far with a {comparison.loss_name} of {measured}; some runs are still in progress."
    if first.is_baseline:
        alike = [row.title for row in comparison.rows if row.conclusion is Conclusion.UNDECIDED]
        doubt = f" No significant difference to {', '.join(alike)}." if alike else ""
        as_good = [row.title for row in comparison.rows if row.conclusion is Conclusion.AS_GOOD]
        doubt += f" As good within the margin: {', '.join(as_good)}." if as_good else ""
        return f"ranks first and is the baseline: {comparison.loss_name} {measured}.{doubt}"
    baseline = next((row for row in comparison.rows if row.is_baseline), None)
    return f"ranks first: {comparison.loss_name} {measured}{_memory_clause(first, baseline)}. {first.verdict}"


def workload_facts(experiment: AnyExperiment) -> tuple[str, ...]:
    """What all runs of the experiment share, in few words; of a damaged one what is wrong."""
    if isinstance(experiment, DamagedExperiment):
        return (experiment.damaged,)
    spec = experiment.spec
    workload, seeds = spec.workload, len(spec.seeds)
    at_most = "at most " if spec.adds_seeds() else ""
    common: tuple[str, ...] = (f"{at_most}{pluralize(seeds, 'seed')}", workload.task.computes_in or workload.precision)
    if isinstance(spec, ComparisonSpec) and spec.tries_improvement():
        tried = sorted(spec.candidates, key=lambda each: each.name() == spec.baseline_name())
        names = (f"{candidate_title(each.optimizer, each.optimizer)} at {each.learning_rates[0]:g}" for each in tried)
        common = (*common, " against ".join(names))
    if cells := spec.cells():
        budgets = len({cell.budget for cell in cells})
        return (
            f"scaling law over {', '.join(spec.models())}",
            workload.data.dataset,
            f"{pluralize(budgets, 'token budget')} per size",
            *common,
        )
    return (
        *spec.models(),
        workload.data.dataset,
        pluralize(workload.budget.steps, "step"),
        f"{formats.compact(workload.tokens())} {workload.task.batch_unit} per run",
        *common,
    )


def step_share(run: RunRecord) -> float:
    """How much of its steps a run has done, in per cent."""
    done = run.result.steps if run.result is not None else run.step
    return round(min(100.0, 100 * done / max(1, run.steps_total)), 1)


def _memory_clause(row: CandidateRow, baseline: CandidateRow | None) -> str:
    share = _share(row.optimizer_state_bytes, baseline.optimizer_state_bytes if baseline else None)
    if baseline is None or share is None or round(share, 2) == 1:
        return ""
    amount = f"{100 * abs(1 - share):.0f} % {'less' if share < 1 else 'more'}"
    return f", with {amount} optimizer state than {baseline.title}"


def _whiskers(rows: Sequence[CandidateRow]) -> dict[str, Whisker]:
    """One scale for all rows, which holds the intervals, so that a wide one looks wider than a narrow one. Cut are
    those that are much wider than others, and those beside which the means would lie on top of one another."""
    losses = [row.val_loss for row in rows if row.val_loss is not None]
    if not losses:
        return {}
    low, high = min(loss.mean for loss in losses), max(loss.mean for loss in losses)
    spread = high - low or 0.02 * abs(low) or 1.0
    halves = [half for loss in losses if (half := loss.half_width()) is not None]
    reach = min(max(halves), 2 * median_low(halves), 10 * spread) if halves else 0.0
    margin = max(0.6 * spread, reach)
    left, width = low - margin, high - low + 2 * margin
    return {row.candidate: _whisker(row, left, width) for row in rows if row.val_loss is not None}


def _whisker(row: CandidateRow, left: float, width: float) -> Whisker:
    assert row.val_loss is not None

    def place(value: float) -> float:
        return 100 * (value - left) / width

    middle = place(row.val_loss.mean)
    low = middle if row.val_loss.low is None else place(row.val_loss.low)
    high = middle if row.val_loss.high is None else place(row.val_loss.high)
    return Whisker(
        middle=round(middle, 1),
        low=round(max(low, 0.0), 1),
        high=round(min(high, 100.0), 1),
        cut_low=low < 0,
        cut_high=high > 100,
    )


def _share(value: int | None, baseline: int | None) -> float | None:
    return value / baseline if value is not None and baseline else None


def power_text(power: DesignPower) -> str:
    """What a comparison can show before it is run, in 80 % of cases."""
    seeds, least = pluralize(power.seeds, "seed"), power.detectable_difference
    lost = list(power.out_of_reach.values())
    of_all = set.intersection(*map(set, lost)) if len(lost) == power.comparisons else set()
    if least is not None:
        ways = [way for way in (Conclusion.BETTER, Conclusion.WORSE) if way not in of_all]
        shown = "a difference of" if len(ways) != 1 else f"that a candidate is {ways[0]} by"
        return f"with {seeds}, {shown} {least:.2g}{power.loss_unit}{_range(power, 'detectable_difference')}"
    if {Conclusion.BETTER, Conclusion.WORSE} <= of_all:
        return "nothing, with any number of seeds: better rates than the kept ones could turn any difference"
    if power.limit is not PowerLimit.INSTABILITY and power.seeds > 1:
        return "nothing: the best rate may well lie at an edge of its grid, give more rates"
    return f"with {seeds}, nothing"


def power_details(power: DesignPower) -> tuple[str, ...]:
    """What that hangs on, and how many seeds the margin takes, either way; a sentence each."""
    unit = power.loss_unit
    found = ["Shown in 80 % of cases."] if power.detectable_difference is not None else []
    for name, lost in power.out_of_reach.items():
        *most, last = (each.replace("_", " ") for each in lost)
        verdicts = f"neither {', '.join(most)} nor {last}" if most else f"not {last}"
        found.append(
            f"{name} can be called {verdicts} with any number of seeds: the tuning that chose the rates left open how "
            "much better others are. Tune again, over more rates."
        )
    if power.expected_runs is not None:
        found.append(
            f"{power.most_runs} judged runs at most, {power.expected_runs} on average where all candidates are equal."
        )
    if power.margin is not None:
        at_once = "With all seeds at once a" if power.expected_runs is not None else "A"
        margin = f"{power.margin:g}{unit}"
        is_limited = None in (power.seeds_for_difference, power.seeds_for_margin, power.detectable_difference)
        found.append(
            f"{at_once} difference of {margin} takes {_seeds(power.seeds_for_difference, power.limit)}"
            f"{_range(power, 'seeds_for_difference')}, as good within "
            f"{margin} takes {_seeds(power.seeds_for_margin, power.limit)}{_range(power, 'seeds_for_margin')}"
            f"{_LIMITS[power.limit] if is_limited else ''}."
        )
    if power.unstable_share:
        found.append(f"{100 * power.unstable_share:.2g} % of runs are taken to spike or diverge, as before.")
    if power.searches == 0:
        found.append("What its search leaves open comes on top, and is known once a search like it has ended.")
    elif power.left_open is not None:
        alike = pluralize(power.searches or 0, "earlier search", "earlier searches")
        whose = (
            f"By {alike} like it, its search leaves" if power.searches else "The tuning that chose the rates left up to"
        )
        found.append(f"{whose} {power.left_open:.2g}{unit} open to either side.")
    if power.searches_left_out:
        others = pluralize(power.searches_left_out, "search like it was", "searches like it were")
        found.append(f"{others} left out: not ended, or nobody knows how far the best rates were missed.")
    noise = f"Paired noise of {power.paired_sd:.2g}{unit}, from {pluralize(power.experiments, 'earlier experiment')}"
    if power.least_noise is not None and power.most_noise is not None:
        low, high = power.least_noise.paired_sd, power.most_noise.paired_sd
        noise += f"; of so few runs it may be {low:.2g} to {high:.2g}, and the ranges in brackets follow from that"
    if power.unfinished:
        noise += "; not all of them were judged, and at other rates it may be quite another"
    return (*found, f"{noise}.")


def _range(power: DesignPower, name: str) -> str:
    """` (3 to 51)`, by the bounds of the noise; empty where that is known better."""
    if power.least_noise is None or power.most_noise is None or getattr(power, name) is None:
        return ""
    low, high = (
        f"{found:.2g}" if isinstance(found, float) else found
        for found in (getattr(power.least_noise, name), getattr(power.most_noise, name))
    )
    return f" ({low} or more)" if high is None else f" ({low} to {high})"


def _seeds(count: int | None, limit: PowerLimit) -> str:
    if count is not None:
        return pluralize(count, "seed")
    return "more than a thousand seeds" if limit is PowerLimit.SEEDS else "no number of seeds"


_LIMITS = {
    PowerLimit.SEEDS: "",
    PowerLimit.EVALUATION: ", for the error of the validation text is too large: more `evaluation.sequences` do",
    PowerLimit.INSTABILITY: ", for who spikes or diverges more often than the baseline has no verdict on its loss",
    PowerLimit.TUNING: ", for tuning leaves too much open: more rates or trials narrow that, and more tuning seeds",
}


def external_facts(experiment: ExternalExperiment) -> str:
    """`18 runs: 17 finished, 1 running`."""
    states = ", ".join(f"{count} {state}" for state, count in experiment.by_state.items())
    return f"{pluralize(experiment.runs, 'run')}: {states}" if states else "no runs"


def field_value(field: RunField, value: Value) -> str:
    """A field of the table of all runs."""
    if value is None:
        return formats.UNKNOWN
    if field.kind is FieldKind.TIME:
        return formats.moment(float(value))
    if isinstance(value, float):
        return formats.loss(value) if "loss" in field.name else f"{value:.6g}"
    return str(value)
