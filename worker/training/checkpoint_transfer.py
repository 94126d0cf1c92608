"""Checkpoints on their way to a remote folder, by a thread of their own: training neither waits for them nor fails.

    offer ──► the newest one ──thread──► remote folder ──► uploaded: where it is now

Only the newest one waits: one that is overtaken before its turn is never sent. One that cannot be sent is let go with a
warning, and the next one is tried: it stands for all before it. Nothing is reported after the run has left.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final, Self

from worker.errors import LeaseRevokedError, RemoteFolderError
from worker.records.protocol import CheckpointNotice
from worker.remote.checkpoints import RemoteCheckpoints
from worker.remote.folder import retry_while_away
from worker.training.checkpoint import CheckpointStore

logger = logging.getLogger(__name__)

LEAVING_SECONDS: Final = 15.0
"""A run that stops waits this long for what is being sent: about as long as it is let."""


class CheckpointUploads:
    """Use it in a `with`."""

    def __init__(
        self,
        remote: RemoteCheckpoints,
        uploaded: Callable[[CheckpointNotice], object],
        copy_logs: Callable[[], None] = lambda: None,
    ) -> None:
        """`uploaded` is notified of each, with the path that it has there; `copy_logs` is called behind each."""
        self._remote, self._uploaded, self._copy_logs = remote, uploaded, copy_logs
        self._waiting: CheckpointNotice | None = None
        self._leaving = self._left = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._work, name="checkpoint-uploads", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # Nothing goes on from a run that has its result, and a lost one is somebody else's.
        is_resumed = kind is not None and not issubclass(kind, LeaseRevokedError)
        with self._changed:
            self._leaving, self._left = True, not is_resumed
            self._changed.notify_all()
        if is_resumed:
            self._thread.join(LEAVING_SECONDS)
            if self._thread.is_alive():
                logger.warning("the last checkpoint did not reach %s in time", self._remote.folder.url)
        with self._changed:  # whatever is told of from now on would come behind the run's end
            self._left = True

    def offer(self, notice: CheckpointNotice) -> None:
        """Send this checkpoint, which lies on this machine's disk, instead of the one that still waits."""
        with self._changed:
            self._waiting = notice
            self._changed.notify_all()

    def _work(self) -> None:
        while (notice := self._next()) is not None:
            self._send(notice)

    def _next(self) -> CheckpointNotice | None:
        """Return the next one to send; None if no more will come."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._leaving)
            notice, self._waiting = self._waiting, None
            return None if self._left else notice

    def _send(self, notice: CheckpointNotice) -> None:
        started = time.monotonic()
        try:
            copy = self._remote.put(notice)
            logger.info(
                "the checkpoint of step %d is at %s after %.1f s", copy.step, copy.path, time.monotonic() - started
            )
            with self._changed:
                if not self._left:
                    self._uploaded(copy)
            self._copy_logs()
        except (RemoteFolderError, OSError) as error:  # an OSError of the report, where this machine's disk is full
            if Path(notice.path).exists():  # else it was overtaken twice while it waited
                logger.warning("the checkpoint of step %d stays on this machine alone: %s", notice.step, error)


def fetch_newest_checkpoint(
    remote: RemoteCheckpoints,
    store: CheckpointStore,
    counted_steps: Mapping[int, int],
    check_stop: Callable[[], None],
) -> None:
    """Fetch the newest good checkpoint that counts, in case this machine lacks it.

    Only steps that were reported to the service count: points of later ones may have been lost with their machine, and
    the curve would have a gap. Nor does what an attempt that lost its lease without knowing wrote behind the step from
    which its successor went on: `counted_steps` has the last step of each earlier attempt. A folder that cannot be
    reached is waited for, since training anew costs more; `check_stop` as in `retry_while_away`.

    Raises `RemoteFolderError` if the folder stays unreachable and there is nothing here to go on from.
    """
    own_notice = store.newest_local()
    if not counted_steps or (own_notice is not None and own_notice.rank() >= max(counted_steps.items())):
        return

    def fetch() -> None:
        after = (-1, -1) if own_notice is None else own_notice.rank()
        for checkpoint in remote.counted_checkpoints(counted_steps, after):
            notice = remote.notice(checkpoint)
            if notice is not None and store.take_over(notice, partial(remote.fetch, checkpoint)):
                logger.info("the checkpoint of step %d comes from %s", notice.step, notice.path)
                return
            logger.warning("passed over %s/%s: it is damaged or gone", remote.folder.url, checkpoint.stem)
        logger.warning("%s has no good checkpoint that counts and is later than what is here", remote.folder.url)

    try:
        retry_while_away(fetch, check_stop)
    except RemoteFolderError as error:
        if own_notice is None:
            raise
        logger.warning("going on from step %d, which is here: %s", own_notice.step, error)
