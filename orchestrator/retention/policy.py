"""What a run keeps of its checkpoints, on the disk and in a remote folder: by its state, and by the setting."""

from dataclasses import dataclass
from typing import Literal

import sqlalchemy as sa

from orchestrator.jobs import RunStatus
from orchestrator.store.tables import checkpoints

Keep = Literal["best", "last", "none"]


@dataclass(frozen=True, kw_only=True)
class CheckpointPolicy:
    """What a run keeps."""

    last: int
    """So many of the checkpoints that it could go on from."""
    best: bool
    """The one with its lowest validation loss."""


def checkpoint_policy(status: RunStatus, keep: Keep) -> CheckpointPolicy:
    """What an ended run keeps."""
    return CheckpointPolicy(last=0 if status is RunStatus.SUCCEEDED or keep == "none" else 1, best=keep == "best")


def forget(connection: sa.Connection, run_id: str, kept: CheckpointPolicy) -> None:
    """No checkpoint is told of that is not there."""
    mine, is_best = checkpoints.c.run_id == run_id, checkpoints.c.val_loss.is_not(None)
    order = checkpoints.c.attempt, checkpoints.c.step
    known = connection.execute(sa.select(*order).where(mine, ~is_best).order_by(*order)).all()
    for attempt, step in known[: len(known) - kept.last]:
        this = checkpoints.c.attempt == attempt, checkpoints.c.step == step
        connection.execute(sa.delete(checkpoints).where(mine, *this))
    if not kept.best:
        connection.execute(sa.delete(checkpoints).where(mine, is_best))
