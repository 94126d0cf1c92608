"""Write the points of your own training loop as JSON lines on disk (a spool), and send them to the service.

    {"id": "…", "part": "…", "run": {"experiment": …, "candidate": …, "lr": …, "seed": …}}     what the run is
    {"at": 1764000000.0, "state": "running"}
    {"at": 1764000001.2, "step": 100, "metrics": {"val_loss": 3.21}}
    {"at": 1764000009.7, "state": "finished"}

Each process that logs a run writes its own spool. Each line is written by one system call, so a killed process leaves
every line that it logged, and at most one torn line. The service answers how many lines of a spool it has, and the
client sends those after them: sending a spool twice, or from two processes at once, changes nothing.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from orchestrator.external_runs import MOST_LINES, ExternalId, LinesBatch, RunHeader, SpoolLine
from worker.records.result import Record
from worker.schema import first_fault

if TYPE_CHECKING:
    from api.client.client import Client

SUFFIX = ".run.jsonl"
FOLDER = Path("adapm-runs")
"""The folder of spools in the folder where the training was started; $ADAPM_BENCH_RUNS names another."""
FOLDER_VARIABLE = "ADAPM_BENCH_RUNS"
TAIL_BYTES = 2**17
"""The part of the file that is read for the last step: a line has at most 200 metrics, about 40 kB."""
MOST_BYTES = 2**18
"""The most bytes in one request; the service reads 1 MiB."""


class SpoolError(Exception):
    """A file is not a spool."""


class SpoolHead(Record):
    """The first line of a spool."""

    id: ExternalId
    part: ExternalId
    run: RunHeader


@dataclass(frozen=True, kw_only=True)
class Synced:
    """The state of a spool after sending."""

    path: Path
    run_id: str
    experiment: str
    sent: int
    """The number of lines that were new to the service."""
    lines: int
    """The number of lines that the service has now."""


class RunSpool:
    """A spool file, read up to its last complete line."""

    def __init__(self, path: Path) -> None:
        """Raises `SpoolError` if the file has no header, `OSError` if it cannot be read."""
        self.path = path
        if not path.is_file():  # opening a pipe would wait for who writes to it
            raise SpoolError(f"{path} is not a file")
        with path.open("rb") as file:
            first = file.readline()
        if not first.endswith(b"\n"):
            raise SpoolError(f"{path} has no whole first line: its process was killed before it logged anything")
        try:
            head = SpoolHead.model_validate_json(first)
        except ValidationError as error:
            fault = " ".join(first_fault(error).removeprefix(": ").split())[:300]
            raise SpoolError(
                f"{path}, line 1, does not say which run it is: {fault}. Nothing of it was sent, and it "
                "stays as it is: mend that line, or move the file elsewhere"
            ) from error
        self.run_id, self.part, self.run = head.id, head.part, head.run
        self._place = (0, len(first))
        """The number and offset of the next line to read."""
        self._begin = self._place
        self._received: int | None = None

    def lines(self, first: int = 0) -> Iterator[SpoolLine | None]:
        """Yield the complete lines from that number on; None for one that cannot be read."""
        number, offset = self._place if self._place[0] <= first else self._begin
        with self.path.open("rb") as file:
            file.seek(offset)
            for line in file:
                if not line.endswith(b"\n"):  # it is being written, or never will be
                    return
                if number >= first:
                    yield _line(line)
                number, offset = number + 1, offset + len(line)
                self._place = number, offset

    def last_step(self) -> int | None:
        """Return the step of the last line that has one, looking only at the end of the file."""
        with self.path.open("rb") as file:
            file.seek(max(self.path.stat().st_size - TAIL_BYTES, 0))
            lines = map(_line, reversed(file.read().splitlines()))
        return next((line.step for line in lines if line is not None and line.step is not None), None)

    def send(self, client: "Client") -> Synced:
        """Send the lines that the service does not have. Raises `ClientError`."""
        if self._received is None:
            self._received = client.send_lines(self.run_id, LinesBatch(run=self.run, part=self.part)).lines
        had = received_lines = self._received
        is_behind = True
        while is_behind:
            is_behind = False
            for batch in batches(self.run, self.part, self.lines(received_lines), received_lines):
                received_lines = client.send_lines(self.run_id, batch).lines
                # Another process may have sent more; a service that was restored from a backup may have less.
                if is_behind := received_lines != batch.first_line + len(batch.lines):
                    break
        self._received = received_lines
        return Synced(
            path=self.path,
            run_id=self.run_id,
            experiment=self.run.experiment,
            sent=max(received_lines - had, 0),
            lines=received_lines,
        )


def batches(run: RunHeader, part: str, lines: Iterable[SpoolLine | None], first_line: int = 0) -> Iterator[LinesBatch]:
    """Yield the lines of a spool in pieces that fit a request; `first_line` is the number of the first line."""
    piece: list[SpoolLine | None] = []
    size = 0
    for line in lines:
        length = 0 if line is None else len(line.model_dump_json())
        if piece and (len(piece) == MOST_LINES or size + length > MOST_BYTES):
            yield LinesBatch(run=run, part=part, first_line=first_line, lines=tuple(piece))
            first_line, piece, size = first_line + len(piece), [], 0
        piece.append(line)
        size += length
    if piece:
        yield LinesBatch(run=run, part=part, first_line=first_line, lines=tuple(piece))


def find(folder: Path) -> list[Path]:
    """Return the spools in a folder and its subfolders, ordered by their last change."""
    files = [path for path in (folder, *folder.rglob(f"*{SUFFIX}")) if path.is_file()]
    return sorted(files, key=lambda path: (path.stat().st_mtime, path.name))


def _line(line: bytes) -> SpoolLine | None:
    try:
        return SpoolLine.model_validate_json(line)
    except ValidationError:
        return None
