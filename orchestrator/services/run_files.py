"""The files of a run that can be fetched from the service: specification, result, logs, checkpoints.

Logs and checkpoints are read where they lie, in the run's folder on this machine or on a disk that it shares; nothing
there that is a link is followed, and what lies elsewhere is listed with its place alone.
"""

import io
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Final

from orchestrator.errors import NotFoundError
from orchestrator.records import FileKind, RunFile, RunRecord
from orchestrator.retention.checkpoints import FOLDER as CHECKPOINTS
from orchestrator.storage import Storage
from worker.records.protocol import CheckpointNotice
from worker.reporting.log import FOLDER as LOGS
from worker.reporting.log import open_log

SPECIFICATION: Final = "specification.json"
RESULT: Final = "result.json"
_LOG: Final = re.compile(r"attempt-([1-9]\d{0,8})(-process-[1-9]\d{0,5})?\.log")
_CHECKPOINT: Final = re.compile(r"step-\d{9,16}\.pt")


def list_files(storage: Storage, run: RunRecord, notices: Sequence[CheckpointNotice]) -> tuple[RunFile, ...]:
    """Return the files of a run; `kept` are the checkpoints that the service knows of."""
    folder = storage.runs_folder() / run.id
    documents = ((FileKind.SPECIFICATION, SPECIFICATION), (FileKind.RESULT, RESULT))
    written = ((kind, name, _document(run, name)) for kind, name in documents)
    return (
        *(RunFile(name=name, kind=kind, size_bytes=len(text)) for kind, name, text in written if text is not None),
        *_logs(folder),
        *(_checkpoint(folder, notice) for notice in notices),
    )


def open_file(
    storage: Storage, run: RunRecord, notices: Sequence[CheckpointNotice], name: str
) -> tuple[IO[bytes], int]:
    """Return a file of the list, open, with its size in bytes. Raises `NotFoundError`."""
    wanted = next((file for file in list_files(storage, run, notices) if file.name == name and file.is_here), None)
    if wanted is None:
        raise NotFoundError(f"run {run.id} has no file {name[:64]!r} here; `GET /v1/runs/{run.id}/files` lists them")
    if (text := _document(run, name)) is not None:
        return io.BytesIO(text), len(text)
    folder = LOGS if wanted.kind is FileKind.LOG else CHECKPOINTS
    try:
        file = os.fdopen(open_log(storage.runs_folder() / run.id / folder / name), "rb")
    except OSError as error:
        raise NotFoundError(f"the file {name} of run {run.id} has just gone: {error.strerror}") from error
    return file, os.fstat(file.fileno()).st_size


def _document(run: RunRecord, name: str) -> bytes | None:
    """Return the specification or the result as text; None if it is neither, or there is none."""
    record = {SPECIFICATION: run.spec, RESULT: run.result}.get(name)
    return None if record is None else f"{record.model_dump_json(indent=2)}\n".encode()


def _logs(folder: Path) -> Iterator[RunFile]:
    try:
        names = [name for name in os.listdir(folder / LOGS) if _LOG.fullmatch(name)]
    except OSError:  # no attempt has begun, or its machine keeps its own
        return
    for name in sorted(names, key=lambda name: (int(name.split(".")[0].split("-")[1]), len(name), name)):
        size_bytes = _size_bytes(folder / LOGS / name)
        if size_bytes is not None:
            attempt = int(name.removesuffix(".log").split("-")[1])
            yield RunFile(name=name, kind=FileKind.LOG, size_bytes=size_bytes, attempt=attempt)


def _checkpoint(folder: Path, notice: CheckpointNotice) -> RunFile:
    name = notice.path.replace("\\", "/").rsplit("/", 1)[-1]
    size_bytes = _size_bytes(folder / CHECKPOINTS / name) if _CHECKPOINT.fullmatch(name) else None
    return RunFile(
        name=name,
        kind=FileKind.CHECKPOINT,
        size_bytes=notice.size_bytes,
        attempt=notice.attempt,
        step=notice.step,
        sha256=notice.sha256,
        place=notice.path,
        is_here=size_bytes == notice.size_bytes,
    )


def _size_bytes(path: Path) -> int | None:
    """Return the size of a plain file that no link leads to; None if there is none."""
    try:
        descriptor = open_log(path)
    except OSError:
        return None
    try:
        return os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)
