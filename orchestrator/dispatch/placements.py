"""The room that Ray sets aside for the processes of one attempt: a placement group, which Ray Train makes.

Ray frees it when Ray Train's controller says so, or when the whole job is over. Where the controller is killed while
its processes are still starting, nobody says so: `PlacementGroupCleaner` of Ray 2.60 learns of the group once they all
run. No later run would get those CPUs and GPUs. Ray Train gives its groups no name, so ours are known by a few bytes of
memory that each process reserves beside its CPUs.
"""

import time
import zlib
from collections.abc import Collection
from typing import Final

import ray
import structlog
from ray.util.placement_group import PlacementGroup, remove_placement_group

from orchestrator.jobs import RunId

log = structlog.get_logger(__name__)

WATCH_SECONDS: Final = 30.0
"""The time after an attempt's end within which its group may still appear: its controller dies a little later than its
actor."""


def reserved_bytes(run_id: str, attempt: int) -> int:
    """Return the memory that each process of that attempt reserves on its node: at most a mebibyte, different for
    each."""
    return 1 + zlib.crc32(f"{run_id} {attempt}".encode()) % 2**20


class EndedPlacements:
    """Frees what attempts of several processes have left behind."""

    def __init__(self) -> None:
        self._ended: dict[tuple[RunId, int], float] = {}
        """When each ended, for as long as it is watched."""

    def watch(self, run_id: RunId, attempt: int) -> None:
        """Watch the placement of an attempt that has ended, or is about to: its group has no owner any more."""
        self._ended[run_id, attempt] = time.monotonic()

    def free(self, live: Collection[tuple[RunId, int]]) -> None:
        """Remove the groups of attempts that have ended; asks Ray only for a while after such an end. What a `live`
        attempt might be known by as well is left alone."""
        since = time.monotonic() - WATCH_SECONDS
        self._ended = {key: ended_at for key, ended_at in self._ended.items() if ended_at > since}
        if not self._ended:
            return
        live_bytes = {reserved_bytes(*key) for key in live}
        attempts_by_memory = {memory: key for key in self._ended if (memory := reserved_bytes(*key)) not in live_bytes}
        for name, group in ray.util.placement_group_table().items():
            reserved = {int(bundle.get("memory", 0)) for bundle in group["bundles"].values()}
            if group["state"] != "REMOVED" and len(reserved) == 1 and reserved <= attempts_by_memory.keys():
                run_id, attempt = attempts_by_memory[reserved.pop()]
                log.warning("the room of an attempt that has ended is freed", run=run_id, attempt=attempt)
                remove_placement_group(PlacementGroup(ray.PlacementGroupID(bytes.fromhex(name))))
