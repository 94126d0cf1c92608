"""Resuming on a machine that has not the run's checkpoints: the newest good one is brought here from the remote folder.

Only steps that the service was told of count: of later ones the points may have been lost with their machine, and the
curve would have a gap. A folder that cannot be reached is waited for, since training anew costs more.
"""

import logging
from collections.abc import Callable
from functools import partial

from worker.checkpoint import CheckpointStore
from worker.errors import RemoteFolderError
from worker.protocol import CheckpointNotice
from worker.remote_checkpoints import RemoteCheckpoints
from worker.remote_folder import PATIENCE_SECONDS, patiently

logger = logging.getLogger(__name__)


def bring(
    remote: RemoteCheckpoints,
    here: CheckpointStore,
    known: CheckpointNotice | None,
    obey: Callable[[], None],
    patience_seconds: float = PATIENCE_SECONDS,
) -> None:
    """Have the newest good checkpoint up to the `known` one here, if there is any; `obey` as in `patiently`.

    Raises `RemoteFolderError` where the folder stays unreachable and there is nothing here to go on from.
    """
    if known is None:
        return
    own = here.newest_step()
    if own is not None and own >= known.step:
        return
    try:
        patiently(lambda: _bring(remote, here, known.step, -1 if own is None else own), obey, patience_seconds)
    except RemoteFolderError as error:
        if own is None:
            raise
        logger.warning("going on from step %d, which is here: %s", own, error)


def _bring(remote: RemoteCheckpoints, here: CheckpointStore, known_step: int, own_step: int) -> None:
    for checkpoint in remote.before(known_step, own_step):
        notice = remote.notice(checkpoint)
        if notice is not None and here.take_over(notice, partial(remote.fetch, checkpoint)):
            logger.info("the checkpoint of step %d comes from %s", notice.step, notice.path)
            return
        logger.warning("passed over %s/%s: it is damaged or gone", remote.folder.url, checkpoint.stem)
    logger.warning("%s has no good checkpoint of steps %d to %d", remote.folder.url, own_step + 1, known_step)
