"""What the service tells about experiments and runs: frozen records that the api, the client and the pages share.

All times are seconds since 1970 on the database's clock; null means not yet.
"""

from pydantic import Field

from orchestrator.experiments import ComparisonSpec
from orchestrator.jobs import AttemptOutcome, RunStatus
from worker.record import Record, Result, Verdict
from worker.spec import RunSpec


class StateCounts(Record):
    """How many runs of an experiment are in each state; the states add up to `total`."""

    total: int
    by_status: dict[RunStatus, int]

    def ended(self) -> int:
        """Runs in a terminal state."""
        terminal = (RunStatus.SUCCEEDED, RunStatus.FAILED, RunStatus.CANCELLED)
        return sum(self.by_status.get(status, 0) for status in terminal)

    def done(self) -> bool:
        """Whether no run can move any more."""
        return self.ended() == self.total


class Progress(Record):
    """How far an experiment is and how fast it goes."""

    steps_done: int
    steps_total: int
    tokens_per_second: float | None
    """Sum over the runs that are training now."""
    seconds_left: float | None
    """Estimated from the pace of this experiment so far; null while nothing is known."""


class ExperimentRecord(Record):
    """One experiment with its state."""

    id: str
    name: str
    kind: str
    spec: ComparisonSpec
    spec_hash: str
    created_at: float
    ended_at: float | None
    counts: StateCounts
    progress: Progress


class Submission(Record):
    """The answer to a submission."""

    experiment: ExperimentRecord
    created: bool
    """False where an earlier submission with the same idempotency key had made it."""


class RunRecord(Record):
    """One run with its state; its result once there is one."""

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
    """Why the run waits, failed or was cancelled, in a sentence."""
    attempt: int
    """The newest attempt's number; 0 before the first."""
    step: int
    """The last step that a heartbeat told of."""
    steps_total: int
    created_at: float
    started_at: float | None
    ended_at: float | None
    device_seconds: float
    """Over all attempts, lost ones too."""
    last_train_loss: float | None = None
    last_val_loss: float | None = None
    tokens_per_second: float | None = None
    spec: RunSpec
    result: Result | None = None


class Standing(Record):
    """Where a run stands in the queue."""

    position: int | None
    """1 is next; null where the run does not wait, or no machine of the cluster could ever hold it."""
    waiting: int
    """Runs in the queue, of all experiments."""
    starts_in_seconds: float | None
    """Estimated from the duration of the last runs and the number at work; null while nothing is known."""


class AttemptRecord(Record):
    """One execution of a run by one worker."""

    run_id: str
    attempt: int
    leased_at: float
    started_at: float | None
    heartbeat_at: float | None
    ended_at: float | None
    outcome: AttemptOutcome | None
    message: str | None
    device_seconds: float


class EventRecord(Record):
    """One change of state; `sequence` counts from 1 without gaps in each run."""

    run_id: str
    sequence: int
    at: float
    from_status: RunStatus | None
    to_status: RunStatus
    attempt: int
    reason: str | None


class Interval(Record):
    """A mean over seeds with its 95 % t-interval; the interval is null below two values."""

    mean: float
    low: float | None
    high: float | None
    n: int = Field(ge=1)

    def half_width(self) -> float | None:
        """Half the width of the interval, as in `mean ± half`."""
        return None if self.high is None else self.high - self.mean


class Difference(Record):
    """A paired difference to the baseline over common seeds; negative is better."""

    mean: float
    low: float | None
    high: float | None
    n: int
    p_value: float | None
    """Two-sided paired t-test; null where it is not defined."""
    p_value_holm: float | None
    """Corrected over the comparison's candidates by Holm's method."""


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


class CandidateRow(Record):
    """One line of the leaderboard: a candidate at its best learning rate."""

    candidate: str
    optimizer: str
    title: str
    is_baseline: bool
    best_lr: float | None
    edge_of_grid: bool
    """The best learning rate is the lowest or highest tried: a better one may lie outside."""
    val_loss: Interval | None
    difference: Difference | None
    """To the baseline at the baseline's best learning rate; null for the baseline."""
    optimizer_state_bytes: int | None
    parameter_bytes: int | None
    peak_memory_bytes: int | None
    """Largest over the seeds; `peak_memory_kind` says of what."""
    peak_memory_kind: str | None
    """`host RSS`, `allocator` or `NVML process`."""
    step_seconds: float | None
    """Median over the seeds of each run's median."""
    optimizer_seconds: float | None
    tokens_per_second: float | None
    device_hours: float
    """Every attempt of every run of this candidate, the whole grid included."""
    verdict: str
    """One sentence."""
    learning_rates: tuple[LearningRateRow, ...]
    verdicts: dict[Verdict, int]


class Comparison(Record):
    """The answer to a comparison: the leaderboard, best first; candidates without a finite loss last."""

    experiment_id: str
    name: str
    complete: bool
    """Whether every run has ended."""
    baseline: str
    device: str | None
    """`cpu`, or the GPU's name; device-hours on a CPU are never called GPU-hours."""
    rows: tuple[CandidateRow, ...]
    notes: tuple[str, ...]
    """What a fair reader must know: too few seeds, missing pairs, edges, the scale."""
