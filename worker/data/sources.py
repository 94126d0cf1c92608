"""From a dataset's name to its documents."""

import os
import platform
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from worker.catalog import datasets
from worker.catalog.datasets import HubLocation
from worker.data.documents import Document, DocumentSource, LocalSource, SourceCursor, make_document
from worker.data.files import OwnFiles
from worker.errors import DataError

FOREIGN_FOLDERS: Final = frozenset({"site-packages", "dist-packages", "__pycache__"})
"""Folders below the standard library that do not belong to it."""


class PythonStdlib(LocalSource):
    """The dataset `python-stdlib`: every `.py` file of the interpreter's own library that is UTF-8, a document each."""

    def __init__(self, folder: Path | None = None) -> None:
        """Read `folder`; by default the running interpreter's own library."""
        self.folder = folder or Path(sysconfig.get_path("stdlib"))
        self.version = f"{platform.python_implementation()} {platform.python_version()}"
        self._files: list[tuple[str, Path]] = []
        for name, folders, files in os.walk(self.folder):
            # In place: `walk` does not enter what is taken out, and installed packages are ten times the library.
            folders[:] = [subfolder for subfolder in folders if subfolder not in FOREIGN_FOLDERS]
            paths = (Path(name) / file for file in files if file.endswith(".py"))
            self._files += [(path.relative_to(self.folder).as_posix(), path) for path in paths if path.is_file()]
        self._files.sort()
        self.total_bytes = sum(path.stat().st_size for _, path in self._files)

    def read(self) -> Iterator[Document]:
        """Yield the files, sorted by their relative paths."""
        for name, path in self._files:
            try:
                yield make_document(path.read_bytes().decode(), name)
            except UnicodeDecodeError:  # the library's own tests hold files in other encodings, on purpose
                self.skipped_documents += 1


AGAIN: Final = "Check the network and HF_ENDPOINT, then repeat the command: what was finished is kept."


class HubSource:
    """The training split of one subset of a repository of the Hugging Face hub, in the order of its files, streamed.

    The cursor is the library's own state, so that going on opens the right file and not all of those before it.
    """

    total_bytes: int | None = None

    def __init__(self, location: HubLocation) -> None:
        """Stream from `location`; nothing is read before `documents`."""
        self.location = location
        self.version = f"{location.repository} {location.subset} at {location.revision}"
        self.skipped_documents = 0
        self._stream: Any = None

    def documents(self, cursor: SourceCursor | None = None) -> Iterator[Document]:
        """Yield the rows with text from `cursor` on; raises `HubError` if the hub cannot be read."""
        self.skipped_documents = int(cursor["skipped"]) if cursor else 0
        from worker.data.hub import explain_hub_errors, open_stream  # a second, for those who read from the hub

        location = self.location
        with explain_hub_errors(f"{location.repository} ({location.subset})", AGAIN):
            self._stream = open_stream(location.repository, location.subset, split="train", revision=location.revision)
            if cursor:
                self._stream.load_state_dict(cursor["stream"])
            for row in self._stream:
                text = self._text(row)
                if text:
                    yield make_document(text)
                else:
                    self.skipped_documents += 1

    def cursor(self) -> SourceCursor:
        """Return the place behind the last row that was yielded."""
        return {"stream": self._stream.state_dict(), "skipped": self.skipped_documents}

    def _text(self, row: dict[str, Any]) -> str | None:
        column = self.location.column
        text = row.get(column, 0)
        if not isinstance(text, str | None):
            columns = ", ".join(row)
            raise DataError(f"{self.version} has no text column {column!r}; its columns: {columns}. Name one of them.")
        return text


LOCAL: Final[dict[str, Callable[[], DocumentSource]]] = {"python-stdlib": PythonStdlib}
"""Sources that need nothing but this machine."""


def source_of(dataset: str, paths: Sequence[str] = (), column: str = "text") -> DocumentSource:
    """Return the source of a dataset; own ones are read from `paths`. Raises `DataError` if they do not fit
    together."""
    try:
        entry = datasets.dataset(dataset)
    except KeyError as error:
        raise DataError(f"{error.args[0]}. Choose one of them.") from error
    if datasets.dataset_kind(dataset) is not datasets.DataKind.TEXT:
        raise DataError(f"{dataset} holds {datasets.dataset_kind(dataset)}: its tasks prepare it when they first run.")
    if entry is None:
        if not paths:
            raise DataError(f"the dataset {dataset!r} is your own: say with --from which files it is made of.")
        return OwnFiles(paths, column)
    if paths:
        raise DataError(f"{dataset} has its own source. Give your files a name of their own: own/<name>.")
    return LOCAL[dataset]() if entry.hub is None else HubSource(entry.hub)
