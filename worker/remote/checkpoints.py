"""Checkpoints in a remote folder, for machines that share no disk: their names, and which of them count (torch-free).

    <folder of a run>/attempt-0002/step-000000120.pt      the state, as on the worker's disk
    <folder of a run>/attempt-0002/step-000000120.json    its `CheckpointNotice`, written after it

An attempt writes under its own number and deletes nothing: one that lost its lease without knowing harms no successor.
The service deletes (`orchestrator/retention/checkpoints.py`), since it knows which of them were reported.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from worker.errors import RemoteFolderError
from worker.records.protocol import CheckpointNotice
from worker.remote.folder import RemoteFolder

STATE: Final = ".pt"
NOTICE: Final = ".json"
_NAME: Final = re.compile(r"attempt-(\d+)/step-(\d+)\.(pt|json)")


@dataclass(frozen=True, kw_only=True, order=True)
class RemoteCheckpoint:
    """A checkpoint by its name; the later one of two is the greater: by its attempt, then by its step."""

    attempt: int
    step: int

    @property
    def stem(self) -> str:
        """The common beginning of its two files' names."""
        return f"attempt-{self.attempt:04d}/step-{self.step:09d}"


def parse_checkpoint_name(name: str) -> tuple[RemoteCheckpoint, str] | None:
    """Return the checkpoint that a file belongs to, and the file's ending; None for any other file."""
    if (match := _NAME.fullmatch(name)) is None:
        return None
    attempt, step, ending = match.groups()
    return RemoteCheckpoint(attempt=int(attempt), step=int(step)), f".{ending}"


def complete_checkpoints(names: Iterable[str]) -> list[RemoteCheckpoint]:
    """Return the checkpoints that have both of their files, the latest last."""
    endings: dict[RemoteCheckpoint, set[str]] = {}
    for checkpoint, ending in filter(None, map(parse_checkpoint_name, names)):
        endings.setdefault(checkpoint, set()).add(ending)
    return sorted(checkpoint for checkpoint, file_endings in endings.items() if file_endings == {STATE, NOTICE})


class RemoteCheckpoints:
    """The checkpoints of one run in its remote folder, as one attempt sees them."""

    def __init__(self, url: str, attempt: int) -> None:
        """`url` is the run's own folder."""
        self.folder, self._attempt = RemoteFolder(url), attempt

    def put(self, notice: CheckpointNotice) -> CheckpointNotice:
        """Copy a checkpoint of this attempt there; returns its notice as it stands there.

        Raises `RemoteFolderError`; what is there then is not a checkpoint, for its notice goes last.
        """
        stem = f"attempt-{self._attempt:04d}/{Path(notice.path).stem}"
        remote_notice = notice.model_copy(update={"path": f"{self.folder.url}/{stem}{STATE}"})
        self.folder.put(Path(notice.path), f"{stem}{STATE}")
        self.folder.write(f"{stem}{NOTICE}", remote_notice.model_dump_json().encode())
        return remote_notice

    def counted_checkpoints(self, steps: Mapping[int, int], after: tuple[int, int]) -> list[RemoteCheckpoint]:
        """Return the checkpoints of earlier attempts up to the step of each that counts, and later than the attempt and
        step in `after`; latest first. Raises `RemoteFolderError`."""
        checkpoints = complete_checkpoints(self.folder.sizes())
        later = [checkpoint for checkpoint in reversed(checkpoints) if after < (checkpoint.attempt, checkpoint.step)]
        return [
            checkpoint
            for checkpoint in later
            if checkpoint.attempt < self._attempt and checkpoint.step <= steps.get(checkpoint.attempt, -1)
        ]

    def notice(self, checkpoint: RemoteCheckpoint) -> CheckpointNotice | None:
        """Return its notice; None if it is gone or cannot be understood. Raises `RemoteFolderError`."""
        if (content := self.folder.read(f"{checkpoint.stem}{NOTICE}")) is None:
            return None
        try:
            notice = CheckpointNotice.model_validate_json(content)
        except ValidationError:
            return None
        return notice.model_copy(update={"attempt": checkpoint.attempt})

    def fetch(self, checkpoint: RemoteCheckpoint, path: Path) -> bool:
        """Copy its state to `path`; False if it is gone. Raises `RemoteFolderError`."""
        try:
            self.folder.fetch(f"{checkpoint.stem}{STATE}", path)
        except RemoteFolderError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return False
            raise
        return True
