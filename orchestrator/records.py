"""Experiments and runs: frozen records that the api, the client and the pages share.

All times are seconds since 1970 on the database's clock; null means not yet.
"""

import math
from collections.abc import Sequence
from enum import StrEnum
from typing import TypedDict

from pydantic import ConfigDict, Field

from optim.catalog import Scalar
from orchestrator.annotations import Note
from orchestrator.jobs import OUTCOMES, TERMINAL, AttemptOutcome, Outcome, RunStatus, TimeLimit, outcome_of, state_word
from orchestrator.kinds.registry import ExperimentSpec
from worker.records.result import Record, Result, Verdict, Whole
from worker.spec.run import RunSpec


class StateCounts(Record):
    """The number of an experiment's runs in each state; the states add up to `total`."""

    total: int
    by_status: dict[RunStatus, int]
    by_verdict: dict[Verdict, int] = Field(default_factory=dict)
    """The number of `succeeded` runs by verdict, without `converged`."""
    growing: bool = False
    """Whether runs may still be added: a tuned comparison that has not chosen every winner yet."""

    def ended(self) -> int:
        """Return the number of runs in a terminal state."""
        return sum(number for status, number in self.by_status.items() if status in TERMINAL)

    def by_outcome(self) -> dict[Outcome | RunStatus, int]:
        """Return the number of runs by outcome, and of those that have not ended by state; they add up to `total`."""
        lost = {OUTCOMES[verdict].value: number for verdict, number in self.by_verdict.items()}
        counted = {status.value: number for status, number in self.by_status.items()} | lost
        counted[Outcome.FINISHED.value] = counted.pop(RunStatus.SUCCEEDED.value, 0) - sum(lost.values())
        return {state: counted[state.value] for state in (*Outcome, *RunStatus) if counted.get(state.value)}

    def words(self) -> str:
        """Return the same for people: `3 finished, 1 diverged, 7 queued`."""
        return ", ".join(f"{number} {state.value.replace('_', ' ')}" for state, number in self.by_outcome().items())

    def done(self) -> bool:
        """Return whether no run can move any more."""
        return self.ended() == self.total and not self.growing


class Progress(Record):
    """The progress of an experiment and its speed."""

    steps_done: int
    steps_total: int
    """The steps of all runs, while the experiment grows also of future ones, at most."""
    tokens_per_second: float | None
    """Sum over the runs that are training now."""
    seconds_left: float | None
    """Estimated from the pace of this experiment so far; null while nothing is known."""


class ExperimentSummary(Record):
    """An experiment without its specification."""

    id: str
    name: str
    kind: str
    spec_hash: str
    created_at: float
    ended_at: float | None
    counts: StateCounts
    progress: Progress
    key_id: str | None = None
    """The key that submitted it; null if the service had none."""
    labels: tuple[str, ...] = ()
    """Words that people gave it, by the alphabet."""
    note: Note | None = None
    revision: int = 0
    """Grows with every change of labels and note, with deletion and restoring; it is the `ETag`, and what `If-Match`
    asks for."""
    cloned_from: str | None = None
    """The experiment that it is a clone of."""
    deleted_at: float | None = None
    undo_until: float | None = None
    """The time until which a deleted experiment can be restored; null if it is being removed."""

    def runs_planned(self) -> int:
        """Return the number of planned runs, as far as that is known."""
        return self.counts.total


class DamagedExperiment(ExperimentSummary):
    """An experiment whose stored specification cannot be read; everything else of it stays as it is."""

    spec: None = None
    damaged: str
    """The unreadable part and the reason, in a sentence."""


class ExperimentRecord(ExperimentSummary):
    """An experiment with its state."""

    spec: ExperimentSpec
    refused: str | None = None
    """The reason why this specification would be refused today, so that it cannot be submitted again; null for nearly
    all."""

    def runs_planned(self) -> int:
        """Return the number of planned runs, including those that have not started."""
        if self.counts.growing:
            return max(self.spec.run_count(), self.counts.total)
        return self.counts.total


AnyExperiment = ExperimentRecord | DamagedExperiment
"""An experiment in a list, or whose state is all that matters."""


class SubmissionReceipt(Record):
    """The answer to a submission."""

    experiment: ExperimentRecord
    created: bool
    """False if an earlier submission with the same idempotency key had made it."""


class RunRecord(Record):
    """A run with its state; its result once there is one."""

    id: str
    experiment_id: str
    position: int
    candidate: str
    optimizer: str
    lr: float
    seed: int
    model: str
    status: RunStatus
    reason: str | None
    """The reason why the run waits, failed or was cancelled, in a sentence."""
    attempt: int
    """The newest attempt's number; 0 before the first."""
    step: int
    """The last step that a heartbeat reported."""
    steps_total: int
    created_at: float
    started_at: float | None
    ended_at: float | None
    device_seconds: float
    """Over all attempts, lost ones too."""
    last_train_loss: float | None = None
    last_val_loss: float | None = None
    tokens_per_second: float | None = None
    deadline_at: float | None = None
    limit_reached: TimeLimit | None = None
    """The time limit that stopped it."""
    micro_batch_sequences: int | None = None
    """The micro-batch of its attempts instead of the specification's, since an earlier one ran out of memory."""
    spec: RunSpec | None
    """Null where it is damaged."""
    result: Result | None = None
    damaged: str | None = None
    """The unreadable part of the stored run and the reason, in a sentence; null for nearly all."""

    def outcome(self) -> Outcome | None:
        """Return the outcome; None if it has not ended, or cannot be read."""
        if self.damaged is not None and self.result is None and self.status is RunStatus.SUCCEEDED:
            return None
        return outcome_of(self.status, self.result.verdict if self.result else None)

    def state_word(self) -> str:
        """Return people's word for its state."""
        if self.damaged is not None:
            return "damaged"
        return state_word(self.status, self.result.verdict if self.result else None)


ExperimentWithRuns = tuple[ExperimentRecord, Sequence[RunRecord]]
"""An experiment with all of its runs."""

SORT_KEYS = (
    "candidate",
    "optimizer",
    "model",
    "lr",
    "seed",
    "status",
    "step",
    "started_at",
    "ended_at",
    "device_seconds",
    "last_train_loss",
    "last_val_loss",
    "tokens_per_second",
)
"""The keys that a list of runs may be sorted by; with `-` before it the largest first. Runs without a value come
last."""


class RunFilter(TypedDict, total=False):
    """A filter of runs; null lists all."""

    experiment_id: str | None
    status: RunStatus | None
    candidate: str | None
    optimizer: str | None
    model: str | None
    seed: int | None


class QueuePosition(Record):
    """The place of a run in the queue."""

    position: int | None
    """1 is next; null if the run does not wait, or no machine of the cluster could ever hold it."""
    waiting: int
    """Runs in the queue, of all experiments."""
    starts_in_seconds: float | None
    """Estimated from the duration of the last runs and the number at work; null while nothing is known, and while no
    dispatcher begins any."""
    waits_for: str | None = None
    """The quota that keeps it from starting, in a sentence; null if none does."""


class AttemptRecord(Record):
    """An execution of a run by a worker."""

    run_id: str
    attempt: int
    leased_at: float
    started_at: float | None
    heartbeat_at: float | None
    ended_at: float | None
    outcome: AttemptOutcome | None
    message: str | None
    device_seconds: float
    note: str | None = None
    """A note of its worker, such as a damaged checkpoint that was passed over."""


class EventRecord(Record):
    """A change of state; `sequence` counts from 1 without gaps in each run."""

    run_id: str
    sequence: int
    at: float
    from_status: RunStatus | None
    to_status: RunStatus
    attempt: int
    reason: str | None


class FileKind(StrEnum):
    """The content of a run's file."""

    SPECIFICATION = "specification"
    RESULT = "result"
    LOG = "log"
    CHECKPOINT = "checkpoint"


class RunFile(Record):
    """A file of a run; its points are an export, which is made when it is asked for."""

    name: str
    kind: FileKind
    size_bytes: Whole
    is_here: bool = True
    """Whether the service can hand it out; else `place` says where it is."""
    attempt: int | None = None
    """The attempt that wrote a log or a checkpoint."""
    step: int | None = None
    """The step of a checkpoint; null for others, like the fields below."""
    sha256: str | None = None
    place: str | None = None


class Chart(Record):
    """A metric of a run over ranges of steps, as columns of equal length: where nothing is left out, each range is one
    point, and lowest, mean and highest value are the same."""

    run_id: str
    metric: str
    first_step: tuple[int, ...]
    last_step: tuple[int, ...]
    points: tuple[int, ...]
    """The number of points in the range."""
    low: tuple[float, ...]
    mean: tuple[float, ...]
    high: tuple[float, ...]


class Timing(Record):
    """The number of times and the total duration of something."""

    count: int
    seconds: float


class ServiceMetrics(Record):
    """The counts of the database over all experiments."""

    runs: dict[RunStatus, int]
    attempts: dict[AttemptOutcome, int]
    """The number of ended attempts by outcome."""
    cpus_at_work: int
    gpus_at_work: int
    device_seconds: float
    claim: Timing
    """The time from a run's submission to its first lease."""
    dispatch: Timing
    """The time from an attempt's lease to the first word of its worker."""
    export_backlog: int
    export_lag_seconds: float


class Interval(Record):
    """A mean over seeds with its 95 % t-interval; the interval is null below two values."""

    mean: float
    low: float | None
    high: float | None
    n: int = Field(ge=1)

    def half_width(self) -> float | None:
        """Return half the width of the interval, as in `mean ± half`."""
        return None if self.high is None else self.high - self.mean


SECONDS_PER_HOUR = 3_600.0
SIGNIFICANCE = 0.05
"""The share of experiments of equal candidates in which any of them may be called better or worse."""


class Difference(Record):
    """A paired difference to the baseline, or to another candidate, by the paired t-test; negative is better. Its
    interval leaves zero out exactly where p < 0.05."""

    model_config = ConfigDict(extra="ignore")  # evidence of earlier versions says what tuning left open, too

    p_value: float | None
    """Two-sided, times `comparisons` (Bonferroni); at a look of a sequential comparison the share of the level that the
    data use up. Null where there is no test."""
    comparisons: int = Field(default=1, ge=1)
    """The number of tests that it is one of, all that the specification asks for: with 95 % all of their intervals hold
    at once."""
    mean: float
    low: float | None
    """The lower end of the simultaneous 95 % interval; null below two pairs."""
    high: float | None
    n: int
    """Pairs: seeds on which neither run was lost, or replicates."""
    sd: float | None = None
    """Standard deviation of a paired difference; null below two pairs."""
    evaluation_error: float = 0.0
    """Standard error of the difference by the validation text, which all seeds share; the interval holds it."""
    margin: float | None = None
    """Differences below it do not matter, says the specification; null if it sets none."""
    is_within_margin: bool = False
    """Whether the difference is shown to be smaller than the margin, either way (TOST)."""
    seeds_to_decide: int | None = None
    """The number of fresh pairs that would decide an undecided difference with a chance of 80 %, if it is as large and
    as noisy as it looks; null if that takes more than a thousand."""

    def bounds(self) -> tuple[float, float]:
        """Return the ends of the interval, infinite where there is none."""
        return -math.inf if self.low is None else self.low, math.inf if self.high is None else self.high

    def decides(self) -> bool:
        """Return whether the interval leaves zero out."""
        return self.is_better() or self.is_worse()

    def is_better(self) -> bool:
        """Return whether the whole interval lies below zero."""
        return self.high is not None and self.high < 0

    def is_worse(self) -> bool:
        """Return whether it lies above."""
        return self.low is not None and self.low > 0


class Instability(Record):
    """The lost runs among a candidate's judged ones: diverged, out of memory, or ended far above their lowest loss."""

    lost: int
    runs: int
    """The number of runs that have ended with a result."""
    low: float
    """The lower end of the exact 95 % interval of the share (Clopper and Pearson)."""
    high: float
    p_value: float | None
    """The p-value of as many losses as the baseline's on the same seeds (McNemar, exact); null for the baseline."""


class Conclusion(StrEnum):
    """The conclusion of a comparison on a candidate: the verdict as data."""

    BASELINE = "baseline"
    BETTER = "better"
    """The interval of the difference lies below zero."""
    WORSE = "worse"
    """Its loss is higher."""
    AS_GOOD = "as_good"
    """The difference is shown to lie within the margin."""
    UNDECIDED = "undecided"
    """Neither is shown."""
    UNSTABLE = "unstable"
    """More of its judged runs were lost than of the baseline's, so it is neither better nor as good."""
    NO_LOSS = "no_loss"
    """No run that counts has ended with a finite loss."""

    @classmethod
    def _missing_(cls, value: object) -> "Conclusion | None":
        """Return undecided for the two more names that answers of an earlier version have for it."""
        return cls.UNDECIDED if value in ("unequally_tuned", "not_compared") else None


class SeedsStatus(StrEnum):
    """The reason why a candidate of a sequential comparison gets another seed, or none."""

    WAITING = "waiting"
    """Runs of the next look have not ended."""
    OPEN = "open"
    """More seeds may decide."""
    DECIDED = "decided"
    """Better, worse, or as good."""
    FUTILE = "futile"
    """All seeds would hardly decide."""
    ALL_USED = "all_used"
    """There is no further seed."""


class SeedsUsed(Record):
    """The seeds that were added for one candidate of a sequential comparison."""

    status: SeedsStatus
    looks: int
    """The number of looks that were taken: every seed that the candidate had then had ended, and the baseline's too."""
    seeds: int
    most: int
    """Seeds of the specification."""


class LearningRateRow(Record):
    """All seeds of one candidate at one learning rate."""

    lr: float
    val_loss: Interval | None
    """Null while no run has ended with a finite loss."""
    runs_ended: int
    runs_total: int
    diverged: int
    out_of_memory: int = 0
    run_ids: tuple[str, ...]
    lost: int = 0
    """Runs that diverged, ran out of memory or ended far above their own lowest loss: `val_loss` leaves them out."""
    setting: dict[str, Scalar] = Field(default_factory=dict)
    """The searched setting tried with this rate, if tuning searches more than the rate."""


class OpenInterval(Record):
    """A figure with its simultaneous 95 % interval, either end of which may be open."""

    mean: float | None
    """Null where it lies beyond the evaluations."""
    low: float | None
    high: float | None
    n: int = Field(ge=1)


class TimeToTarget(Record):
    """The time at which a candidate reached the loss at which the baseline ended: where, in the mean over the seeds,
    its loss less that of the baseline's run of the same seed falls to zero. A time without a high end may be later than
    the last step, one without a low end sooner than the first evaluation; null if neither it nor an end is known."""

    reached: int
    """Seeds whose own run reached it."""
    n: int
    """Seeds that both have."""
    steps: OpenInterval | None
    tokens: OpenInterval | None
    """The tokens, in proportion to steps, like device-hours."""
    device_hours: OpenInterval | None
    speed_up: OpenInterval | None
    """The baseline's steps to that loss by the candidate's. Without a low end it may be any below `high`; null for the
    baseline, and without an interval."""


TENSORS = "tensors"
"""The subject of peak memory, wherever it is one column."""


class CandidateRow(Record):
    """A line of the leaderboard: a candidate at its judged setting."""

    candidate: str
    optimizer: str
    title: str
    is_baseline: bool
    best_lr: float | None
    edge_of_grid: bool
    """The best trial is the lowest or highest rate tried: the candidate is not called worse, and nothing better."""
    val_loss: Interval | None
    difference: Difference | None
    """The difference to the baseline at the baseline's best learning rate; null for the baseline."""
    optimizer_state_bytes: int | None
    parameter_bytes: int | None
    peak_memory_bytes: int | None
    """Most bytes of tensors at once on the device, the largest over the seeds; what the process itself takes is a
    detail of each run."""
    peak_memory_kind: str | None
    """`tensors`; null if it is unknown."""
    step_seconds: float | None
    """Median over the seeds of each run's median."""
    optimizer_seconds: float | None
    tokens_per_second: float | None
    device_hours: float
    """Every attempt of every run of this candidate, the whole grid included."""
    verdict: str
    """The meaning of `conclusion` and `difference`, in a sentence."""
    conclusion: Conclusion
    learning_rates: tuple[LearningRateRow, ...]
    """The learning rates; if it was tuned first, over the tuning seeds."""
    verdicts: dict[Verdict, int]
    outcomes: dict[Outcome, int] = Field(default_factory=dict)
    """The outcomes of its runs, also of those without a result."""
    final: LearningRateRow | None = None
    """Phase 2 of a tuned comparison: the seeds at the best learning rate, of which `val_loss` is the mean."""
    tuning: bool = False
    """Whether phase 1 is still under way."""
    run_device_hours: float | None = None
    """Mean over the runs at the best learning rate."""
    peak_memory_note: str | None = None
    """The reason why there are results and no peak."""
    energy_joules: float | None = None
    """Mean over the runs at the best learning rate; null if the device does not measure it."""
    time_to_target: TimeToTarget | None = None
    """Null where no seed can be compared with the baseline's."""
    instability: Instability | None = None
    """Null while no judged run has ended."""
    on_pareto_front: bool = False
    """Whether no candidate has both a lower mean loss and less optimizer state."""
    seeds_used: SeedsUsed | None = None
    """Null for the baseline, which gets seeds as long as anybody does, and where all seeds run at once."""

    def best(self) -> LearningRateRow | None:
        """Return the runs that `val_loss` is the mean of."""
        return self.final or next((rate for rate in self.learning_rates if rate.lr == self.best_lr), None)

    def cells(self) -> tuple[str, ...]:
        """Return the line of this candidate in a table of plain text; a dash stands for what is unknown."""
        rate = "–" if self.best_lr is None else f"{self.best_lr:.3g}"
        megabytes = [
            "–" if size is None else f"{size / 1e6:,.1f} MB"
            for size in (self.optimizer_state_bytes, self.peak_memory_bytes)
        ]
        step = "–" if self.step_seconds is None else f"{1e3 * self.step_seconds:,.1f} ms"
        loss = "–" if self.val_loss is None else f"{self.val_loss.mean:.4f}"
        if self.val_loss is not None and (half := self.val_loss.half_width()) is not None:
            loss += f" ± {half:.4f}"
        difference = "–" if self.difference is None else f"{self.difference.mean:+.4f}"
        if self.difference is not None and self.difference.low is not None and self.difference.high is not None:
            difference += f" [{self.difference.low:+.4f}, {self.difference.high:+.4f}]"
        return (self.candidate, rate, loss, difference, self.conclusion.value.replace("_", " "), *megabytes, step)

    def lost_runs(self) -> int:
        """Return the number of lost runs of `best`."""
        best = self.best()
        return best.lost if best else 0

    def all_runs(self) -> tuple[LearningRateRow, ...]:
        """Return all runs of the candidate, by learning rate and phase."""
        return self.learning_rates if self.final is None else (*self.learning_rates, self.final)


class CandidatePair(Record):
    """Two candidates compared with each other, where the specification asks for all pairs."""

    candidate: str
    other: str
    """The baseline where it is one of the two, else who ranks behind."""
    title: str
    other_title: str
    difference: Difference | None
    """The candidate's loss less the other's."""
    conclusion: Conclusion
    verdict: str


class Comparison(Record):
    """The answer to a comparison: the leaderboard, best first; then who is unstable, and who has no finite loss."""

    experiment_id: str
    name: str
    complete: bool
    """Whether every run has ended."""
    baseline: str
    device: str | None
    """`cpu`, or the GPU's name; device-hours on a CPU are never called GPU-hours."""
    loss_name: str = "validation loss"
    """The name of the losses: that of a task may be an excess risk, or a negated KL-penalized reward."""
    loss_unit: str = " nats"
    """The unit behind a loss in prose; empty if it has none."""
    tuning_seeds: tuple[int, ...] = ()
    """The seeds on which learning rates were chosen; empty if every seed ran at every rate."""
    rows: tuple[CandidateRow, ...]
    pairs: tuple[CandidatePair, ...] = ()
    """All pairs of candidates, where the specification asks for them: their intervals hold together with 95 %."""
    notes: tuple[str, ...]
    """At most three notes that would change a reader's action, the gravest first."""

    def __str__(self) -> str:
        """Return a table for terminals and notebooks: loss, difference to the baseline, verdict and costs."""
        heads = ("candidate", "lr", self.loss_name, f"to {self.baseline}", "verdict", "state", "peak memory", "step")
        table = [heads, *(row.cells() for row in self.rows)]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        return "\n".join("  ".join(map(str.ljust, cells, widths)).rstrip() for cells in table)

    def losses_beside_baseline(self) -> dict[str, Interval]:
        """Return candidate → the baseline's mean loss plus the difference to it, with the interval of that difference;
        the mean alone of the baseline and of whoever has no difference. Candidates without a loss are left out."""
        baseline = next((row.val_loss for row in self.rows if row.is_baseline), None)
        by_candidate = {}
        for row in self.rows:
            shift = row.difference
            if baseline is not None and shift is not None:
                low, high = (None if end is None else baseline.mean + end for end in (shift.low, shift.high))
                by_candidate[row.candidate] = Interval(mean=baseline.mean + shift.mean, low=low, high=high, n=shift.n)
            elif row.val_loss is not None:
                by_candidate[row.candidate] = row.val_loss.model_copy(update={"low": None, "high": None})
        return by_candidate


class CellRecord(Record):
    """A model size at a token budget of a scaling experiment: a comparison by itself."""

    key: str
    """The cell's name in `?cell=`."""
    model: str
    parameters: int
    steps: int
    tokens: int
    """The tokens of each run."""
    ended: int
    runs: int
    comparison: Comparison
