"""The dataset `python-stdlib`: the library source of the interpreter that runs us, about 30 MB, no download."""

import platform
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from worker.data.documents import Document, LocalSource

FOREIGN_FOLDERS: Final = frozenset({"site-packages", "dist-packages", "__pycache__"})
"""Folders below the standard library that do not belong to it."""


class PythonStdlib(LocalSource):
    """Every `.py` file of the standard library that is UTF-8, as one document each."""

    def __init__(self, folder: Path | None = None) -> None:
        """Read `folder`; by default the running interpreter's own library."""
        self.folder = folder or Path(sysconfig.get_path("stdlib"))
        self.version = f"{platform.python_implementation()} {platform.python_version()}"
        self._files = self._found()
        self.total_bytes = sum(path.stat().st_size for _, path in self._files)

    def read(self) -> Iterator[Document]:
        """Yield the files, sorted by their relative paths."""
        for name, path in self._files:
            try:
                yield Document(name=name, text=path.read_bytes().decode())
            except UnicodeDecodeError:  # the library's own tests hold files in other encodings, on purpose
                self.skipped_documents += 1

    def _found(self) -> list[tuple[str, Path]]:
        found = []
        for path in self.folder.rglob("*.py"):
            relative = path.relative_to(self.folder)
            if path.is_file() and FOREIGN_FOLDERS.isdisjoint(relative.parts):
                found.append((relative.as_posix(), path))
        return sorted(found)
