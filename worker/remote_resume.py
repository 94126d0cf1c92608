"""Resuming on a machine that has not the run's checkpoints: the newest good one is brought here from the remote folder.

Only steps that the service was told of count: of later ones the points may have been lost with their machine, and the
curve would have a gap. Nor does what an attempt that lost its lease without knowing wrote behind the step from which
its successor went on: the service says of each attempt up to where it counts. A folder that cannot be reached is waited
for, since training anew costs more.
"""

import logging
from collections.abc import Callable, Mapping
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
    counted_steps: Mapping[int, int],
    obey: Callable[[], None],
    patience_seconds: float = PATIENCE_SECONDS,
) -> None:
    """Have the newest good checkpoint that counts here, if there is any: `counted_steps` has the last step of each
    earlier attempt; `obey` as in `patiently`.

    Raises `RemoteFolderError` where the folder stays unreachable and there is nothing here to go on from.
    """
    own = here.newest_here()
    if not counted_steps or (own is not None and own.rank() >= max(counted_steps.items())):
        return
    try:
        patiently(lambda: _bring(remote, here, counted_steps, own), obey, patience_seconds)
    except RemoteFolderError as error:
        if own is None:
            raise
        logger.warning("going on from step %d, which is here: %s", own.step, error)


def _bring(
    remote: RemoteCheckpoints,
    here: CheckpointStore,
    counted_steps: Mapping[int, int],
    own: CheckpointNotice | None,
) -> None:
    for checkpoint in remote.counted(counted_steps, (-1, -1) if own is None else own.rank()):
        notice = remote.notice(checkpoint)
        if notice is not None and here.take_over(notice, partial(remote.fetch, checkpoint)):
            logger.info("the checkpoint of step %d comes from %s", notice.step, notice.path)
            return
        logger.warning("passed over %s/%s: it is damaged or gone", remote.folder.url, checkpoint.stem)
    logger.warning("%s has no good checkpoint that counts and is later than what is here", remote.folder.url)
