"""Content of templates that no record has: sentences, tones and the geometry of small bars. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median_low
from typing import Literal, assert_never

from dashboards.palette import Style
from dashboards.text import formats
from dashboards.text.formats import LOSS_IN_NATS
from dashboards.view_state import ViewState
from optim import catalog
from orchestrator.analysis import verdicts
from orchestrator.analysis.laws.targets import target
from orchestrator.external_runs import ExternalExperiment
from orchestrator.jobs import ACTIONABLE, AttemptOutcome, Outcome, RunAction, RunStatus, outcome_of, state_word
from orchestrator.kinds.comparison import ComparisonSpec
from orchestrator.kinds.fields import MOST_SEEDS
from orchestrator.records import (
    AnyExperiment,
    AttemptRecord,
    CandidateRow,
    Comparison,
    Conclusion,
    DamagedExperiment,
    Difference,
    RunRecord,
    StateCounts,
)
from orchestrator.run_table.fields import FieldKind, RunField, Value
from orchestrator.specs.preview import DesignPower
from orchestrator.sweeps.records import SweepReport
from worker.catalog import presets
from worker.records.result import Verdict
from worker.spec.run import Workload
from worker.words import pluralize

CANDIDATES_NAMED = 6
"""The candidates named in a list, of an experiment that the bench did not plan."""
Tone = Literal["good", "live", "wait", "warn", "bad"]


@dataclass(frozen=True, kw_only=True)
class Chip:
    """A word about a state, with the tone that colours it."""

    text: str
    tone: Tone


@dataclass(frozen=True, kw_only=True)
class Segment:
    """A part of a bar that is 100 wide."""

    tone: Tone | Literal["over"]
    """`over`: ended, and neither good nor bad."""
    start: float
    width: float


@dataclass(frozen=True, kw_only=True)
class Whisker:
    """A difference to the baseline with its interval, on a scale of 0 to 100 that all rows share; an arrow where the
    interval leaves it."""

    middle: float
    low: float
    high: float
    cut_low: bool
    cut_high: bool
    zero: float
    """The place of the baseline."""


@dataclass(frozen=True, kw_only=True)
class LeaderboardLine:
    """A line of a leaderboard."""

    rank: int | None
    row: CandidateRow
    style: Style
    whisker: Whisker | None
    state_share: float | None
    """Optimizer-state bytes as a share of the baseline's."""
    pace: str
    """The pace of a step, beside the baseline's."""
    runs_ended: int
    runs_total: int


def run_chip(run: RunRecord) -> Chip:
    """Return the chip of a run: the outcome of an ended run, the state of any other."""
    if run.damaged is not None:
        return Chip(text="damaged", tone="bad")
    return state_chip(run.status, run.result.verdict if run.result else None)


def state_chip(status: RunStatus, verdict: Verdict | None = None) -> Chip:
    """Return the same of a state and a verdict."""
    return Chip(text=state_word(status, verdict), tone=tone(outcome_of(status, verdict) or status))


def event_word(status: RunStatus, run: RunRecord) -> str:
    """Return the state that an event of a run led to: where it is the last one, the run's outcome."""
    return run.state_word() if status is RunStatus.SUCCEEDED else state_word(status, None)


def attempt_word(attempt: AttemptRecord, run: RunRecord) -> str:
    """Return the end of an attempt; the one that brought the result ended as the run did."""
    if attempt.outcome is None:
        return "running"
    return run.state_word() if attempt.outcome is AttemptOutcome.SUCCEEDED else attempt.outcome.value


def tone(state: RunStatus | Outcome) -> Tone:
    """Return the colour of a run's state."""
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
    """Return the actions that would change at least one run in these states."""
    distinct_states = frozenset(states)
    return tuple(
        action
        for action in (RunAction.PAUSE, RunAction.RESUME, RunAction.RETRY, RunAction.CANCEL)
        if ACTIONABLE[action] & distinct_states
    )


def experiment_chip(counts: StateCounts, *, is_damaged: bool = False) -> Chip:
    """Return the state of a whole experiment in a word."""
    if is_damaged:
        return Chip(text="damaged", tone="bad")
    failed = counts.by_status.get(RunStatus.FAILED, 0)
    if counts.done() and failed:
        return Chip(text="done, with failures", tone="bad")
    if counts.done():
        stopped = counts.by_status.get(RunStatus.CANCELLED, 0)
        return Chip(text="cancelled", tone="wait") if stopped else Chip(text="done", tone="good")
    run_count = sum(counts.by_status.values())  # of all that there will be
    if run_count and counts.by_status.get(RunStatus.QUEUED, 0) == run_count:
        return Chip(text="queued", tone="wait")
    if run_count and counts.by_status.get(RunStatus.PAUSED, 0) == run_count - counts.ended():
        return Chip(text="paused", tone="wait")
    return Chip(text="running", tone="live")


def planned_counts(experiment: AnyExperiment | ExternalExperiment) -> StateCounts:
    """Return the states of an experiment's runs out of all that there will be: a sweep's trials are added one by
    one."""
    return experiment.counts.model_copy(update={"total": experiment.runs_planned()})


def state_segments(counts: StateCounts) -> tuple[Segment, ...]:
    """Return the states of an experiment's runs as parts of one bar: the good first, what waits last."""
    order: tuple[Tone | Literal["over"], ...] = ("good", "bad", "over", "live", "warn", "wait")
    numbers = dict.fromkeys(order, 0)
    for state, number in counts.by_outcome().items():
        state_tone = tone(state)
        numbers["over" if state_tone == "wait" and isinstance(state, Outcome) else state_tone] += number
    segments, start = [], 0.0
    for name in order:
        width = 100 * numbers[name] / max(1, counts.total)
        if width:
            segments.append(Segment(tone=name, start=round(start, 2), width=round(width, 2)))
        start += width
    return tuple(segments)


def leaderboard(comparison: Comparison, styles: dict[str, Style]) -> tuple[LeaderboardLine, ...]:
    """Return the leaderboard's lines; only candidates with a finite loss have a rank."""
    intervals = whiskers({row.candidate: row.difference for row in comparison.rows if row.difference is not None})
    baseline = next((row for row in comparison.rows if row.is_baseline), None)
    return tuple(
        LeaderboardLine(
            rank=rank if row.val_loss is not None else None,
            row=row,
            style=styles[row.candidate],
            whisker=intervals.get(row.candidate),
            state_share=_share(row.optimizer_state_bytes, baseline.optimizer_state_bytes if baseline else None),
            pace=pace_words(row, baseline),
            runs_ended=sum(rate.runs_ended for rate in row.all_runs()),
            runs_total=sum(rate.runs_total for rate in row.all_runs()),
        )
        for rank, row in enumerate(comparison.rows, start=1)
    )


def speed_up(row: CandidateRow) -> str:
    """Return a speed-up with its interval: `1.25× (1.18 to 1.31)`, `1.02× (below 1.06)`; `below 1.06×` of a candidate
    that did not get there. Empty where none is known, as of the baseline."""
    ratio = row.time_to_target and row.time_to_target.speed_up
    if not ratio:
        return ""
    match ratio.low, ratio.high:
        case float(low), float(high):
            interval = f"{low:.2f} to {high:.2f}"
        case float(low), _:
            interval = f"above {low:.2f}"
        case _, high:
            interval = f"below {high:.2f}"
    interval = interval.replace(" ", "\N{NO-BREAK SPACE}")
    return f"{interval}×" if ratio.mean is None else f"{ratio.mean:.2f}× ({interval})"


def speed_words(row: CandidateRow) -> str:
    """Return the speed-up, in words; where none is known, how many seeds reached the baseline's loss. Empty for the
    baseline."""
    if row.time_to_target is None or row.is_baseline:
        return ""
    if figure := speed_up(row):
        return f"speed-up {figure}"
    return f"baseline loss reached by {row.time_to_target.reached} of {pluralize(row.time_to_target.n, 'seed')}"


def unstable_runs(row: CandidateRow) -> tuple[str, str]:
    """Return the number of lost runs (`2 of 10`), and where there are any the 95 % interval of their share; with the
    p-value against the baseline's (`3 to 56 %, p = 0.5 against baseline`), if that means anything."""
    lost_share = row.instability
    if lost_share is None:
        return formats.UNKNOWN, ""
    interval = f"{100 * lost_share.low:.0f} to {100 * lost_share.high:.0f} %" if lost_share.lost else ""
    p_value = formats.p_value(lost_share.p_value)
    tested = f"{p_value} against baseline" if p_value not in ("", formats.p_value(1.0)) else ""
    return f"{lost_share.lost} of {lost_share.runs}", ", ".join(filter(None, (interval, tested)))


def verdict_chip(conclusion: Conclusion) -> Chip:
    """Return a verdict in its word, coloured where something is shown."""
    tones: dict[Conclusion, Tone] = {
        Conclusion.BETTER: "good",
        Conclusion.WORSE: "bad",
        Conclusion.AS_GOOD: "live",
        Conclusion.UNSTABLE: "warn",
    }
    return Chip(text=verdicts.WORDS[conclusion], tone=tones.get(conclusion, "wait"))


def view_choices(view: ViewState, field: str, values: Sequence[tuple[str, str]]) -> list[tuple[str, str, bool]]:
    """Return (query, text, whether it is chosen) for each value that a field of the view may have."""
    return [(view.replace(**{field: value}).query(), text, getattr(view, field) == value) for value, text in values]


def leading_row(comparison: Comparison) -> CandidateRow | None:
    """Return the candidate with the lowest mean so far; None before the first result."""
    return next((row for row in comparison.rows if row.val_loss is not None), None)


def candidate_title(candidate: str, optimizer: str) -> str:
    """Return the candidate's name everywhere: its label, else its optimizer's title."""
    entry = catalog.find(optimizer) if candidate == optimizer else None
    return entry.title if entry else candidate


def loss_title(answer: Comparison | SweepReport) -> str:
    """Return the title of a figure's loss axis."""
    return LOSS_IN_NATS if answer.loss_unit else answer.loss_name


def headline_row(comparison: Comparison) -> CandidateRow | None:
    """Return the subject of the answer: the best candidate beside the baseline, the baseline if it is alone; None
    before the first result."""
    return next((row for row in comparison.rows if row.difference is not None), leading_row(comparison))


def headline(comparison: Comparison) -> str:
    """Return the answer so far, as a sentence to stand after that candidate's name and a colon; empty before the first
    result."""
    row = headline_row(comparison)
    if row is None or row.val_loss is None:
        return ""
    so_far, ending = ("", "") if comparison.complete else ("so far ", "; some runs are still in progress")
    lossless = [other.title for other in comparison.rows if other.val_loss is None] if comparison.complete else []
    ending += f"; without a loss: {', '.join(lossless)}" if lossless else ""
    baseline = next((candidate for candidate in comparison.rows if candidate.is_baseline), None)
    if row.difference is None or baseline is None:
        return f"{so_far}a {comparison.loss_name} of {formats.loss(row.val_loss.mean)}{ending}."
    clause = candidate_clause(row, baseline, comparison.loss_unit)
    return f"{so_far}{clause}{ending}.{_smaller_candidate(comparison, row, baseline)}"


def _smaller_candidate(comparison: Comparison, leader: CandidateRow, baseline: CandidateRow) -> str:
    """Return the best candidate that is better than the baseline with no more state, where the leader takes more."""
    state_limit = baseline.optimizer_state_bytes
    if state_limit is None or leader.optimizer_state_bytes is None or leader.optimizer_state_bytes <= state_limit:
        return ""
    for row in comparison.rows:
        if row.conclusion is Conclusion.BETTER and (row.optimizer_state_bytes or state_limit + 1) <= state_limit:
            return f" With no more state, {row.title}: {candidate_clause(row, baseline, comparison.loss_unit)}."
    return ""


def candidate_clause(row: CandidateRow, baseline: CandidateRow, unit: str) -> str:
    """Return a candidate's verdict with its loss, state and time against the baseline's: `better, loss 0.0350 nats
    lower than AdamW (95 %: 0.0080 to 0.0610), with 55 % of AdamW's optimizer state and 17 % slower steps`."""
    estimate = row.difference
    if estimate is None:
        return "no loss to compare"
    interval = verdicts.interval_of_effect(estimate)
    effect, compared = verdicts.effect_text(estimate, unit), baseline.title
    effect = f"{effect} as {compared}" if estimate.mean == 0 else f"loss {effect} than {compared}"
    verdict = verdicts.WORDS[row.conclusion]
    if row.conclusion is Conclusion.AS_GOOD:
        verdict += f" within {estimate.margin:g}{unit}"
    elif row.conclusion is Conclusion.UNSTABLE:
        verdict += f", {pluralize(row.lost_runs(), 'run')} lost"
    clause = f"{verdict}, {effect}" + (f" (95 %: {interval})" if interval else "")
    share, pace = _share(row.optimizer_state_bytes, baseline.optimizer_state_bytes), pace_words(row, baseline)
    costs = [f"{formats.percent(share)} of {baseline.title}'s optimizer state"] if share is not None else []
    costs += [f"{pace} steps"] if pace else []
    return clause + (f", with {' and '.join(costs)}" if costs else "")


def pace_words(row: CandidateRow, baseline: CandidateRow | None) -> str:
    """Return a step's time beside the baseline's: `17 % slower`, `3.0 times slower`; empty if it is not known, and of
    the baseline."""
    if baseline is None or row.is_baseline or not (row.step_seconds and baseline.step_seconds):
        return ""
    ratio = row.step_seconds / baseline.step_seconds
    if ratio >= 2:
        return f"{ratio:.1f} times slower"
    pace = f"{abs(100 * (ratio - 1)):.0f} % {'slower' if ratio > 1 else 'faster'}"
    return "equally fast" if pace.startswith("0 %") else pace


def time_left(experiment: AnyExperiment) -> str:
    """Return how long the planned runs take at the pace so far: `about 4 min 05 s`; `up to 4 min 05 s` while it is open
    how many of them come. Empty without an estimate."""
    seconds, counts = experiment.progress.seconds_left, experiment.counts
    if seconds is None or counts.done():
        return ""
    return f"{'about' if counts.total >= experiment.runs_planned() else 'up to'} {formats.duration(seconds)}"


def seeds_to_ask(comparison: Comparison, planned: int) -> int:
    """Return the fresh seeds that "More seeds" suggests: as many as would decide the undecided, or as many as were
    planned."""
    undecided = [row.difference for row in comparison.rows if row.conclusion is Conclusion.UNDECIDED and row.difference]
    return min(max((difference.seeds_to_decide or planned for difference in undecided), default=planned), MOST_SEEDS)


def workload_facts(experiment: AnyExperiment | ExternalExperiment) -> tuple[str, ...]:
    """Return the facts that all runs of the experiment share, in few words; of a damaged one its damage, and of one of
    another loop or tool its candidates."""
    if isinstance(experiment, ExternalExperiment):
        names = experiment.candidates
        return (", ".join(names[:CANDIDATES_NAMED]) + ", …" * (len(names) > CANDIDATES_NAMED),)
    if isinstance(experiment, DamagedExperiment):
        return (experiment.damaged,)
    spec = experiment.spec
    workload, seeds = spec.workload, len(spec.seeds)
    at_most = "at most " if spec.adds_seeds() else ""
    common: tuple[str, ...] = (f"{at_most}{pluralize(seeds, 'seed')}", workload.task.computes_in or workload.precision)
    if cells := spec.cells():
        budgets = len(cells) // len({cell.model for cell in cells})
        return (
            f"scaling law over {', '.join(spec.models())}",
            workload.data.dataset,
            f"{pluralize(budgets, 'token budget')} per size",
            *common,
        )
    steps = pluralize(workload.budget.steps, "step")
    if isinstance(spec, ComparisonSpec) and spec.equal == "device_hours":
        return (*spec.models(), workload.data.dataset, f"equal device-hours: {steps} for the baseline", *common)
    return (
        *spec.models(),
        workload.data.dataset,
        steps,
        f"{formats.compact(workload.tokens())} {workload.task.batch_unit} per run",
        *_tokens_per_parameter(workload),
        *common,
    )


def _tokens_per_parameter(workload: Workload) -> tuple[str, ...]:
    """Return `0.95 tokens per parameter`; empty if nothing has tokens, or the catalog does not have the model."""
    if workload.task.batch_unit != "tokens" or workload.model not in presets.names():
        return ()
    share = workload.tokens() / target(workload.model, workload.data.tokenizer).parameters
    return (f"{share:.2g} tokens per parameter" if share < 100 else f"{share:,.0f} tokens per parameter",)


def step_share(run: RunRecord) -> float:
    """Return the share of its steps that a run has done, in per cent."""
    steps = run.result.steps if run.result is not None else run.step
    return round(min(100.0, 100 * steps / max(1, run.steps_total)), 1)


def whiskers(by_candidate: Mapping[str, Difference]) -> dict[str, Whisker]:
    """Return whiskers on one scale for all rows, which includes zero and the intervals, so that a wide one looks wider
    than a narrow one. Cut are those that are much wider than others, and those beside which the means would lie on top
    of one another."""
    means = [0.0, *(difference.mean for difference in by_candidate.values())]
    low, high = min(means), max(means)
    spread = high - low or 1.0
    halves = [difference.high - difference.mean for difference in by_candidate.values() if difference.high is not None]
    reach = min(max(halves), 2 * median_low(halves), 10 * spread) if halves else 0.0
    margin = max(0.6 * spread, reach)
    start, width = low - margin, high - low + 2 * margin
    return {candidate: _whisker(difference, start, width) for candidate, difference in by_candidate.items()}


def _whisker(difference: Difference, start: float, width: float) -> Whisker:
    def percent_of_width(value: float) -> float:
        return 100 * (value - start) / width

    middle = percent_of_width(difference.mean)
    low = middle if difference.low is None else percent_of_width(difference.low)
    high = middle if difference.high is None else percent_of_width(difference.high)
    return Whisker(
        middle=round(middle, 1),
        low=round(max(low, 0.0), 1),
        high=round(min(high, 100.0), 1),
        cut_low=low < 0,
        cut_high=high > 100,
        zero=round(percent_of_width(0.0), 1),
    )


def _share(value: int | None, baseline: int | None) -> float | None:
    return value / baseline if value is not None and baseline else None


def power_text(power: DesignPower) -> str:
    """Return the difference that a comparison will show in 80 % of cases."""
    seeds = pluralize(power.seeds, "seed")
    if power.detectable_difference is None:
        return f"with {seeds}, nothing"
    return f"with {seeds}, a difference of {power.detectable_difference:.2g}{power.loss_unit}"


def power_details(power: DesignPower) -> tuple[str, ...]:
    """Return the number of seeds that the margin takes, and its assumptions; a sentence each."""
    sentences = ["Shown in 80 % of cases."] if power.detectable_difference is not None else []
    if power.margin is not None:
        margin = f"{power.margin:g}{power.loss_unit}"
        sentences.append(
            f"A difference of {margin} takes {_seeds(power.seeds_for_difference)}, as good within {margin} takes "
            f"{_seeds(power.seeds_for_margin)}."
        )
        if 3 * power.evaluation_error > power.margin:
            sentences.append(
                f"The error of the validation text, {power.evaluation_error:.2g}{power.loss_unit}, rivals the margin: "
                "a larger `evaluation.sequences` makes it smaller."
            )
    earlier = pluralize(power.experiments, "earlier experiment")
    sentences.append(f"Paired differences vary by {power.paired_sd:.2g}{power.loss_unit}, by {earlier}.")
    return tuple(sentences)


def _seeds(count: int | None) -> str:
    return "more than a thousand seeds" if count is None else pluralize(count, "seed")


def field_title(field: RunField) -> str:
    """Return the heading of a field of the table of all runs: its name in full words."""
    if field.document:
        return field.name
    words = {"lr": "learning rate", "val": "validation", "created": "submitted", "at": ""}
    return " ".join(filter(None, (words.get(word, word) for word in field.name.split("_")))).capitalize()


def field_value(field: RunField, value: Value) -> str:
    """Return a field of the table of all runs."""
    if value is None:
        return formats.UNKNOWN
    if field.kind is FieldKind.TIME:
        return formats.moment(float(value))
    if isinstance(value, float):
        return formats.loss(value) if "loss" in field.name else f"{value:.6g}"
    return str(value)
