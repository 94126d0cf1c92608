"""What the processes of a crew leave for each other and for whoever started them: small files in a folder of one node.

    begun         rank 0 has taken up the attempt
    leave         whoever started them wants them to leave, as SIGTERM does
    fault-1.json  process 1 broke down alone, and why
    word          how the attempt ended, by rank 0

Files, because they outlive a process that is killed, and because an exchange that failed cannot be used to say why.
"""

from pathlib import Path
from types import TracebackType
from typing import Self

from worker.errors import CrewFaultError, CrewMemoryError
from worker.files import write_atomically
from worker.records.protocol import FailureKind
from worker.records.result import Record
from worker.termination import Termination


class CrewFault(Record):
    """Why one process broke down."""

    rank: int
    kind: FailureKind
    out_of_memory: bool
    message: str

    def as_error(self) -> Exception:
        """What the others raise in their turn."""
        said = f"process {self.rank} of the run: {self.message}"
        return CrewMemoryError(said) if self.out_of_memory else CrewFaultError(said, self.kind)


class CrewFolder:
    """The folder of one attempt."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def begin(self) -> None:
        """Say that rank 0 reports from now on."""
        self._write("begun", "")

    def has_begun(self) -> bool:
        """Whether it does."""
        return (self.path / "begun").exists()

    def leave(self) -> None:
        """Ask the crew to write a checkpoint and to leave."""
        self._write("leave", "")

    def shall_leave(self) -> bool:
        """Whether it was asked to."""
        return (self.path / "leave").exists()

    def report(self, fault: CrewFault) -> None:
        """Say why this process breaks down."""
        self._write(f"fault-{fault.rank}.json", fault.model_dump_json())

    def fault(self) -> CrewFault | None:
        """The fault of the lowest rank that left one."""
        found = sorted(self.path.glob("fault-*.json"))
        return CrewFault.model_validate_json(found[0].read_bytes()) if found else None

    def end(self, word: str) -> None:
        """Say how the attempt ended."""
        self._write("word", word)

    def word(self) -> str | None:
        """How it did; None while nobody has said."""
        path = self.path / "word"
        return path.read_text() if path.exists() else None

    def _write(self, name: str, text: str) -> None:
        """All at once: a reader sees the whole text or no file."""
        write_atomically(self.path / name, text)


class LeaveNote(Termination):
    """The note in the folder as a wish to leave: a training outside of the main thread hears no signals."""

    def __init__(self, folder: CrewFolder) -> None:
        super().__init__()
        self._folder = folder

    @property
    def requested(self) -> bool:
        """Whether the note is there."""
        return self._folder.shall_leave()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
