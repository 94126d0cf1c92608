"""Messages between ranks and to their starter: small files in a folder of one node.

    begun         rank 0 has taken up the attempt
    stop          whoever started them wants them to stop, as SIGTERM does
    fault-1.json  process 1 broke down alone, and why
    outcome       how the attempt ended, by rank 0

Files, because they outlive a process that is killed, and because an exchange that failed cannot be used to say why.
"""

from pathlib import Path
from typing import Self

from worker.errors import RankFaultError, RankMemoryError
from worker.files import write_atomically
from worker.records.protocol import FailureKind
from worker.records.result import Record
from worker.termination import Termination


class RankFault(Record):
    """The reason why a process broke down."""

    rank: int
    kind: FailureKind
    out_of_memory: bool
    message: str

    def as_error(self) -> Exception:
        """Return the error that the other processes raise."""
        sentence = f"process {self.rank} of the run: {self.message}"
        return RankMemoryError(sentence) if self.out_of_memory else RankFaultError(sentence, self.kind)


class RankMailbox:
    """The folder of one attempt, by which its ranks and whoever started them write to each other."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def begin(self) -> None:
        """Say that rank 0 reports from now on."""
        write_atomically(self.path / "begun", "")

    def has_begun(self) -> bool:
        """Return whether it does."""
        return (self.path / "begun").exists()

    def request_stop(self) -> None:
        """Ask all ranks to write a checkpoint and to leave."""
        write_atomically(self.path / "stop", "")

    def report_fault(self, fault: RankFault) -> None:
        """Say why this process breaks down."""
        write_atomically(self.path / f"fault-{fault.rank}.json", fault.model_dump_json())

    def fault(self) -> RankFault | None:
        """Return the fault of the lowest rank that left one."""
        paths = sorted(self.path.glob("fault-*.json"))
        return RankFault.model_validate_json(paths[0].read_bytes()) if paths else None

    def report_outcome(self, outcome: str) -> None:
        """Say how the attempt ended."""
        write_atomically(self.path / "outcome", outcome)

    def outcome(self) -> str | None:
        """Return the outcome of the rank; None while nobody has reported it."""
        path = self.path / "outcome"
        return path.read_text() if path.exists() else None


class StopFile(Termination):
    """The file `stop` as a request to leave: a training outside of the main thread hears no signals."""

    def __init__(self, mailbox: RankMailbox) -> None:
        super().__init__()
        self._mailbox = mailbox

    @property
    def is_requested(self) -> bool:
        """Return whether the file is there."""
        return (self._mailbox.path / "stop").exists()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None: ...
