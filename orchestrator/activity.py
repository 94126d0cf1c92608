"""The current activity: attempts in time, runs at work, the queue's head, recent failures, leaders. For pages that
watch.

All times are seconds since 1970 on the database's clock.
"""

from orchestrator.jobs import AttemptOutcome, RunStatus
from worker.records.result import Record

DISPATCHER = "dispatcher"
"""The role of whoever begins runs."""


class AttemptSpan(Record):
    """An attempt in time, of whichever run."""

    run_id: str
    experiment_id: str
    candidate: str
    attempt: int
    node: str | None
    """The machine of the cluster that it was placed on."""
    leased_at: float
    ended_at: float | None
    outcome: AttemptOutcome | None
    message: str | None


class LiveRun(Record):
    """A run that has not ended."""

    run_id: str
    experiment_id: str
    experiment_name: str
    candidate: str
    optimizer: str
    lr: float
    seed: int
    status: RunStatus
    cpus: int
    gpus: int


class RunAtWork(LiveRun):
    """A run that an attempt holds a lease of."""

    step: int
    steps_total: int
    attempt: int
    node: str | None
    started_at: float | None
    silent_seconds: float | None
    """Since its last sign of life; null before the first."""
    tokens_per_second: float | None


class WaitingRun(LiveRun):
    """A run in the queue, at its place."""

    reason: str | None
    position: int | None
    """1 is next; null if no machine of the cluster could ever hold it."""
    starts_in_seconds: float | None
    """An estimate; null while nothing is known, and while no dispatcher begins any."""


class Leader(Record):
    """The holder of a role of which there is one at a time: to dispatch, to export."""

    role: str
    holder: str
    term: int
    """Rises with every change of the holder."""
    expires_in_seconds: float
    """Below zero: nobody has it."""


class Activity(Record):
    """The activity of one moment."""

    now: float
    at_work: tuple[RunAtWork, ...]
    waiting: tuple[WaitingRun, ...]
    """The head of the queue, in its order, then what no machine can hold."""
    waiting_total: int
    failures: tuple[AttemptSpan, ...]
    """The newest attempts that broke or were lost, newest first."""
    failed_runs: int
    """The runs that failed within the last day."""
    leaders: tuple[Leader, ...]
    device_seconds_today: float
    """Since midnight UTC: the sum over attempts, also over those at work, as experiments and quotas count it."""
