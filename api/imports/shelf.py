"""Points of runs on disk, so that of a store of years only one run is in memory."""

import pickle
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any


@dataclass(frozen=True)
class Stored(Sequence[Any]):
    """Items on disk, which are read whenever somebody goes through them."""

    file: IO[bytes]
    place: int
    length: int

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: Any) -> Any:
        self.file.seek(self.place)
        return pickle.load(self.file)[index]  # noqa: S301 - what this process put there

    def __iter__(self) -> Iterator[Any]:
        return iter(self[:])


@contextmanager
def open_shelf() -> Iterator[Callable[[Sequence[Any]], Stored]]:
    """Yield a function that puts items on disk, into a file that is removed at the end. Raises `OSError` if there is no
    room for it."""
    with tempfile.TemporaryFile() as file:

        def put(items: Sequence[Any]) -> Stored:
            stored = Stored(file, file.seek(0, 2), len(items))
            pickle.dump(items, file, pickle.HIGHEST_PROTOCOL)
            return stored

        yield put
