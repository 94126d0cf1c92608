"""Points of runs on disk, so that of a store of years only one run is in memory."""

import pickle
import tempfile
from collections.abc import Iterator, Sequence
from typing import IO, Any, Self


class Shelf:
    """A file without a name, which goes when it is closed."""

    def __init__(self) -> None:
        """Raises `OSError` where there is no room for it."""
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - `__exit__` closes it

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def put(self, items: Sequence[Any]) -> "Stored":
        """The same items, which are read from disk whenever somebody goes through them."""
        self._file.seek(0, 2)
        place = self._file.tell()
        pickle.dump(items, self._file, pickle.HIGHEST_PROTOCOL)
        return Stored(self._file, place, len(items))


class Stored(Sequence[Any]):
    """Items on a shelf."""

    def __init__(self, file: IO[bytes], place: int, length: int) -> None:
        """What `Shelf.put` calls."""
        self._file, self._place, self._length = file, place, length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: Any) -> Any:
        return self._load()[index]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._load())

    def _load(self) -> Sequence[Any]:
        self._file.seek(self._place)
        items: Sequence[Any] = pickle.load(self._file)  # noqa: S301 - what this process put there
        return items
