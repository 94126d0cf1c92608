"""Checkpoints of one run: complete or absent, verified before use, the newest good one wins.

step-000000120.pt     the state, loadable with `weights_only=True`
step-000000120.json   its `CheckpointNotice` (size, SHA-256), written after it: without it there is no checkpoint
"""

import logging
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import torch
from pydantic import ValidationError

from worker.errors import CheckpointError
from worker.files import UNFINISHED, atomic_replacement, file_sha256, write_atomically
from worker.records.protocol import CheckpointNotice

logger = logging.getLogger(__name__)

KEEP: Final = 2
"""Checkpoints kept: the newest, and the one before in case the newest turns out damaged."""
LARGEST_SHARE: Final = 0.02
"""Checkpoints may take this share of the time between them, however large the model is."""

State = dict[str, Any]


class CheckpointStore:
    """The checkpoints in one folder, all of one spec."""

    def __init__(
        self, folder: Path, spec_hash: str, attempt: int | None = None, *, also_known_as: str | None = None
    ) -> None:
        """`attempt` is the one that writes; `also_known_as` another hash by which earlier versions knew the spec."""
        self.folder, self._spec_hash, self._attempt = folder, spec_hash, attempt
        self._known_as = {spec_hash, also_known_as}
        self.passed_over: tuple[str, ...] = ()
        """Of `newest`: what was newer than the state that it returned, and why it was not taken, a sentence each."""

    def save(self, step: int, state: State) -> CheckpointNotice:
        """Write the state of `step`, then drop all but the newest two.

        Raises `OSError` (disk full), with no trace left.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"step-{step:09d}.pt"
        # A worker that has lost its lease without knowing may write the same step: never into the same file.
        with atomic_replacement(path, durable=True) as unfinished:
            with unfinished.open("wb") as file:
                torch.save({**state, "spec_hash": self._spec_hash}, file)
            size_bytes, digest = unfinished.stat().st_size, file_sha256(unfinished)
        notice = CheckpointNotice(
            step=step, path=str(path), size_bytes=size_bytes, sha256=digest, attempt=self._attempt
        )
        write_atomically(path.with_suffix(".json"), notice.model_dump_json(), durable=True)
        # Notices first: a state without one is not a checkpoint, a notice without its state would be a damaged one.
        for old in sorted(self.folder.glob("step-*.json"), key=_rank)[:-KEEP]:
            old.unlink()
        for old in self.folder.glob("step-*.pt"):
            if not old.with_suffix(".json").exists():
                old.unlink()
        return notice

    def newest(self, notice: CheckpointNotice | None = None, *, mapped: bool = False) -> State | None:
        """Return the state of the newest good checkpoint here or at `notice`; None if there is none. Newer is what a
        later attempt wrote, whatever its step.

        A damaged one is passed over, which `passed_over` reports. `mapped` leaves tensors in the file until they are
        used: for processes that take a part each. Raises `CheckpointError` if the folder belongs to another spec.
        """
        for leftover in self.folder.glob(f"*{UNFINISHED}"):
            leftover.unlink(missing_ok=True)  # of an attempt that was killed while it wrote; all ranks look together
        candidates = {candidate.rank(): candidate for candidate in self._notices()}
        if notice is not None:
            candidates.setdefault(notice.rank(), notice)
        self.passed_over = tuple(
            f"the checkpoint {path.stem} was passed over: its notice cannot be read"
            for path in sorted(self.folder.glob("step-*.json"))
            if _read(path) is None
        )
        for rank in sorted(candidates, reverse=True):
            candidate = candidates[rank]
            if (fault := _fault(candidate)) is None:
                state: State = torch.load(candidate.path, map_location="cpu", weights_only=True, mmap=mapped)
                if state["spec_hash"] not in self._known_as:
                    raise CheckpointError(
                        f"the checkpoints in {self.folder} belong to another spec ({state['spec_hash'][:12]}, "
                        f"not {self._spec_hash[:12]}). Give this run a folder of its own, or delete that one."
                    )
                return state
            self.passed_over += (f"the checkpoint of step {candidate.step} was passed over: {fault}",)
        return None

    def newest_local(self) -> CheckpointNotice | None:
        """Return the newest good checkpoint here; None if there is none."""
        return max(
            (notice for notice in self._notices() if _fault(notice) is None), key=CheckpointNotice.rank, default=None
        )

    def drop_overtaken_checkpoints(self, counted_steps: Mapping[int, int]) -> None:
        """Delete what an attempt left here of steps that later ones, perhaps elsewhere, took in their own way: of all
        but the newest attempt in `counted_steps`, and of those before it, whatever lies beyond their counted step."""
        newest = max(counted_steps, default=0)
        for notice in self._notices():
            if (
                notice.attempt is not None
                and notice.attempt < newest
                and notice.step > counted_steps.get(notice.attempt, -1)
            ):
                logger.warning("dropped %s: attempt %d went another way from there", notice.path, newest)
                path = Path(notice.path)
                for file in (path.with_suffix(".json"), path):  # first its notice, which makes a state a checkpoint
                    file.unlink(missing_ok=True)

    def take_over(self, notice: CheckpointNotice, fetch: Callable[[Path], bool]) -> bool:
        """Take in a checkpoint that `fetch` copies from elsewhere; False, and nothing here, where it is damaged."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"step-{notice.step:09d}.pt"
        fetched = path.with_name(f"{path.name}.{os.getpid()}{UNFINISHED}")
        try:
            if not fetch(fetched) or _fault(notice.model_copy(update={"path": str(fetched)})) is not None:
                return False
            fetched.replace(path)
        finally:
            fetched.unlink(missing_ok=True)
        local_notice = notice.model_copy(update={"path": str(path)})
        write_atomically(path.with_suffix(".json"), local_notice.model_dump_json(), durable=True)
        return True

    def _notices(self) -> list[CheckpointNotice]:
        notices = []
        for path in self.folder.glob("step-*.json"):
            if (notice := _read(path)) is not None:
                # The folder may have moved since: the state lies beside its notice.
                notices.append(notice.model_copy(update={"path": str(path.with_suffix(".pt"))}))
        return notices


def _read(path: Path) -> CheckpointNotice | None:
    try:
        return CheckpointNotice.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        logger.warning("passed over the unreadable checkpoint notice %s: %s", path, error)
        return None


def _rank(path: Path) -> tuple[int, int]:
    """Return the order of a notice's file; one that cannot be read is older than all others."""
    return (-1, 0) if (notice := _read(path)) is None else notice.rank()


def _fault(notice: CheckpointNotice) -> str | None:
    """Return the fault of the state beside a notice, also as a warning; None if it is as written."""
    try:
        digest = file_sha256(Path(notice.path))
    except OSError as error:
        logger.warning("passed over the checkpoint %s: %s", notice.path, error)
        return f"it cannot be read ({error.strerror})"
    if digest != notice.sha256:
        logger.warning("passed over the damaged checkpoint %s: its SHA-256 is %s", notice.path, digest)
        return f"it is damaged (its SHA-256 is {digest[:12]}…, not {notice.sha256[:12]}…)"
    return None


class CheckpointTimer:
    """Says when the next checkpoint is due: every so often, less often where they are expensive; 0 s: always."""

    def __init__(self, every_seconds: float) -> None:
        self._every_seconds = every_seconds
        self._due = time.monotonic() + every_seconds

    def is_due(self) -> bool:
        """Return whether it is time."""
        return time.monotonic() >= self._due

    def restart(self, cost_seconds: float) -> None:
        """Start to wait for the next one."""
        bearable_seconds = cost_seconds / LARGEST_SHARE if self._every_seconds else 0.0
        self._due = time.monotonic() + max(self._every_seconds, bearable_seconds)
