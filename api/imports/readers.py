"""Every format that is imported, by the word that the command line has for it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from api.imports import mlflow, tables, tensorboard, text_log, trackio, trainer_state, wandb
from api.imports.mapping import fields_of
from api.imports.source import ReadRequest, SourceError, SourceRun, reading


@dataclass(frozen=True, kw_only=True)
class SourceReader:
    """A format and its reader."""

    source: str
    """The source's name in `RunHeader.source`."""
    files: tuple[str, ...]
    """The names of its files; empty if names do not show the format."""
    read: Callable[[ReadRequest], Iterator[SourceRun]]
    """Raises `SourceError`."""


READERS = {
    reader.source: reader
    for reader in (
        SourceReader(source="csv", files=tables.PATTERNS, read=tables.read),
        SourceReader(source="trainer_state", files=("trainer_state.json",), read=trainer_state.read),
        SourceReader(source="tensorboard", files=("*tfevents*",), read=tensorboard.read),
        SourceReader(source="wandb", files=("*.wandb",), read=wandb.read),
        SourceReader(source="trackio", files=("*.db",), read=trackio.read),
        SourceReader(source="mlflow", files=(), read=mlflow.read),
    )
}
# Not by its source: runs whose source is `log` are of one's own loop.
READERS["log"] = SourceReader(source="text", files=(), read=text_log.read)


def read_runs(reader: SourceReader, request: ReadRequest) -> Iterator[SourceRun]:
    """Yield the wanted runs, one after another. Raises `SourceError`, and nothing else whatever the files are."""
    with reading(", ".join(map(str, request.places)), reader.source):
        for run in reader.read(request):
            fields = fields_of(run)
            if all(fnmatchcase(str(fields.get(name, "")), text) for name, text in request.only.items()):
                yield run


def choose_reader(arguments: Sequence[str]) -> tuple[SourceReader, Sequence[str]]:
    """Return the reader and the places of `import csv a.csv`, or of `import a.csv`, which says by itself what it is.
    Raises `SourceError`."""
    if arguments[0].removesuffix(".json") in READERS and (len(arguments) > 1 or not Path(arguments[0]).exists()):
        if len(arguments) == 1:
            raise SourceError(f"import {arguments[0]}: from where? name files, folders or an address behind it")
        return READERS[arguments[0].removesuffix(".json")], arguments[1:]
    fitting = [
        reader
        for reader in READERS.values()
        if all(any(_has(word, pattern) for pattern in reader.files) for word in arguments)
    ]
    if len(fitting) != 1:
        reader_names = ", ".join(READERS)
        could_be = " or ".join(reader.source for reader in fitting) or "plain text, if anything"
        raise SourceError(f"{arguments[0]} could be {could_be}; name the kind before it: {reader_names}")
    return fitting[0], arguments


def _has(word: str, pattern: str) -> bool:
    path = Path(word)
    return any(file.is_file() for file in path.rglob(pattern)) if path.is_dir() else path.match(pattern)
