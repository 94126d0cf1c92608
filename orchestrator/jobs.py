"""The states of a run and the moves between them.

    submit → QUEUED → LEASED → RUNNING → SUCCEEDED
               ↑         ↘        ↘
               └─ RETRY_WAIT ←──────┴─ lost or broken;  attempts used up → FAILED
    cancel:  QUEUED, RETRY_WAIT, PAUSED → CANCELLED;   LEASED, RUNNING → CANCELLING → CANCELLED
    pause:   QUEUED, RETRY_WAIT → PAUSED;              LEASED, RUNNING → PAUSING → PAUSED
    resume:  PAUSED → QUEUED;                          PAUSING → LEASED, RUNNING (where they were)
    retry:   FAILED, CANCELLED → QUEUED
    limits:  as cancel, by the dispatcher, for a run whose time is up; it says which limit it reached
    memory:  LEASED, RUNNING → RETRY_WAIT, no failure of the run, to go on with half the micro-batch

A run is *live* while an attempt holds its lease. Success absorbs; the other terminal states are left only by `retry`.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import NewType

from worker.records.result import Verdict
from worker.spec.run import RunSpec

ExperimentId = NewType("ExperimentId", str)
RunId = NewType("RunId", str)
Token = NewType("Token", str)
"""The secret of one lease; only its SHA-256 is stored."""


class RunStatus(StrEnum):
    """The state of a run."""

    QUEUED = "queued"
    LEASED = "leased"
    RUNNING = "running"
    RETRY_WAIT = "retry_wait"
    PAUSING = "pausing"
    PAUSED = "paused"
    CANCELLING = "cancelling"
    CANCELLED = "cancelled"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


CLAIMABLE = frozenset({RunStatus.QUEUED, RunStatus.RETRY_WAIT})
LIVE = frozenset({RunStatus.LEASED, RunStatus.RUNNING, RunStatus.PAUSING, RunStatus.CANCELLING})
TERMINAL = frozenset({RunStatus.SUCCEEDED, RunStatus.FAILED, RunStatus.CANCELLED})


class Outcome(StrEnum):
    """The outcome of a run, in the word that people read everywhere: lists, pages, counts, reports, the command line.

    Status and verdict, which columns and REST have, are two halves of it: a run that diverged has *succeeded* in
    bringing a result, and one whose loss has fallen is called *converged* whether or not it still falls.
    """

    FINISHED = "finished"
    """It ran its whole budget, and the validation loss has fallen."""
    DIVERGED = "diverged"
    OUT_OF_MEMORY = "out_of_memory"
    STOPPED_EARLY = "stopped_early"
    """Its sweep stopped it, because others were better at the same step."""
    FAILED = "failed"
    """It ended without a result."""
    CANCELLED = "cancelled"


OUTCOMES = {
    Verdict.CONVERGED: Outcome.FINISHED,
    Verdict.STOPPED_EARLY: Outcome.STOPPED_EARLY,
    Verdict.DIVERGED: Outcome.DIVERGED,
    Verdict.OUT_OF_MEMORY: Outcome.OUT_OF_MEMORY,
}


def outcome_of(status: RunStatus, verdict: Verdict | None) -> Outcome | None:
    """Return the outcome of a run in this state with that result; None if it has not ended."""
    match status:
        case RunStatus.SUCCEEDED:
            return Outcome.FINISHED if verdict is None else OUTCOMES[verdict]
        case RunStatus.FAILED:
            return Outcome.FAILED
        case RunStatus.CANCELLED:
            return Outcome.CANCELLED
        case _:
            return None


def state_word(status: RunStatus, verdict: Verdict | None) -> str:
    """Return people's word for the state of a run: its outcome, or its state before it has one."""
    return (outcome_of(status, verdict) or status).value.replace("_", " ")


_FROM_QUEUE = frozenset({RunStatus.LEASED, RunStatus.CANCELLED, RunStatus.PAUSED, RunStatus.FAILED})
_FROM_WORKER = frozenset(
    {RunStatus.RETRY_WAIT, RunStatus.QUEUED, RunStatus.FAILED, RunStatus.CANCELLING, RunStatus.PAUSING}
)
MOVES: dict[RunStatus, frozenset[RunStatus]] = {
    RunStatus.QUEUED: _FROM_QUEUE,
    RunStatus.RETRY_WAIT: _FROM_QUEUE,
    RunStatus.LEASED: _FROM_WORKER | {RunStatus.RUNNING},
    RunStatus.RUNNING: _FROM_WORKER | {RunStatus.SUCCEEDED},
    RunStatus.CANCELLING: frozenset({RunStatus.CANCELLED, RunStatus.SUCCEEDED}),
    RunStatus.PAUSING: LIVE - {RunStatus.PAUSING} | {RunStatus.PAUSED, RunStatus.SUCCEEDED, RunStatus.FAILED},
    RunStatus.PAUSED: frozenset({RunStatus.QUEUED, RunStatus.CANCELLED}),
    RunStatus.SUCCEEDED: frozenset(),
    RunStatus.FAILED: frozenset({RunStatus.QUEUED}),
    RunStatus.CANCELLED: frozenset({RunStatus.QUEUED}),
}
"""Every move that the store may make; a finish that arrives while a run is being cancelled still counts."""


class RunAction(StrEnum):
    """An action of a user on a run."""

    CANCEL = "cancel"
    PAUSE = "pause"
    """Write a checkpoint and stop; a run that waits just waits on."""
    RESUME = "resume"
    """Go on from the checkpoint."""
    RETRY = "retry"
    """One more attempt for a run that failed or was cancelled."""


ACTIONABLE: dict[RunAction, frozenset[RunStatus]] = {
    RunAction.CANCEL: CLAIMABLE | {RunStatus.LEASED, RunStatus.RUNNING, RunStatus.PAUSING, RunStatus.PAUSED},
    RunAction.PAUSE: CLAIMABLE | {RunStatus.LEASED, RunStatus.RUNNING},
    RunAction.RESUME: frozenset({RunStatus.PAUSED, RunStatus.PAUSING}),
    RunAction.RETRY: frozenset({RunStatus.FAILED, RunStatus.CANCELLED}),
}
"""The states that an action changes: in the others the run is there already, or the action is refused."""


class TimeLimit(StrEnum):
    """The time limit that stopped a run, by the name of the specification's field."""

    MAX_RUN_SECONDS = "max_run_seconds"
    DEADLINE_SECONDS = "deadline_seconds"


class AttemptOutcome(StrEnum):
    """The end of an attempt."""

    SUCCEEDED = "succeeded"
    LOST = "lost"
    """Its lease ran out, or its process is known to be dead."""
    BROKEN = "broken"
    """It reported a failure."""
    INTERRUPTED = "interrupted"
    """The service was stopped under it; it does not count against the run."""
    STOPPED = "stopped"
    """It obeyed cancel or pause."""


@dataclass(frozen=True, kw_only=True)
class Lease:
    """The right to execute one attempt of a run, until it expires or is lost."""

    run_id: RunId
    attempt: int
    token: Token
    spec: RunSpec


@dataclass(frozen=True, kw_only=True)
class LiveAttempt:
    """An attempt that holds a lease, as a dispatcher finds it that has not started it."""

    run_id: RunId
    attempt: int
    node: str | None
    """The machine that it was placed on."""
    cpus: int
    gpus: int


@dataclass(frozen=True, kw_only=True)
class LeasePolicy:
    """The limits of leases and attempts. The TTL is a trade: detection time against tolerance of pauses."""

    ttl_seconds: float = 30.0
    start_seconds: float = 120.0
    """The lease until the worker's hello: its process has to start and to import torch, from a slow disk too, or on a
    busy machine. Where it dies meanwhile, the runner says so at once."""
    heartbeat_seconds: float = 5.0
    """TTL/6: five signs of life may be lost before the lease is."""
    max_failures: int = 3
    """Broken and lost attempts after which a run fails; interrupted ones do not count."""
    backoff_seconds: float = 1.0
    """Delay before the second attempt; doubles each time, with jitter."""
    cancel_grace_seconds: float = 20.0
    """The time that a worker may take to obey before its process is ended."""
