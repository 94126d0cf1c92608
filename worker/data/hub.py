"""Datasets of the Hugging Face hub, streamed: nothing is downloaded but what is read.

`datasets` resolves the repository's files and decodes them (Parquet, gzipped JSON lines); its own state is the cursor,
so that going on after an interruption opens the right file and not all of those before it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from worker.data.catalog import HubLocation
from worker.data.documents import Cursor, Document, named_by_content
from worker.errors import DataError, HubError

AGAIN: Final = "Check the network and HF_ENDPOINT, then repeat the command: what was finished is kept."


class HubSource:
    """The training split of one subset of a repository, in the order of its files."""

    total_bytes: int | None = None

    def __init__(self, location: HubLocation) -> None:
        """Stream from `location`; nothing is read before `documents`."""
        self.location = location
        self.version = f"{location.repository} {location.subset} at {location.revision}"
        self.skipped_documents = 0
        self._stream: Any = None

    def documents(self, cursor: Cursor | None = None) -> Iterator[Document]:
        """Yield the rows with text from `cursor` on; raises `HubError` where the hub cannot be read."""
        self.skipped_documents = int(cursor["skipped"]) if cursor else 0
        with explained(f"{self.location.repository} ({self.location.subset})", AGAIN):
            self._stream = _open(self.location)
            if cursor:
                self._stream.load_state_dict(cursor["stream"])
            for row in self._stream:
                text = self._text(row)
                if text:
                    yield named_by_content(text)
                else:
                    self.skipped_documents += 1

    def cursor(self) -> Cursor:
        """The place behind the last row that was yielded."""
        return {"stream": self._stream.state_dict(), "skipped": self.skipped_documents}

    def _text(self, row: dict[str, Any]) -> str | None:
        column = self.location.column
        text = row.get(column, 0)
        if not isinstance(text, str | None):
            there = ", ".join(row)
            raise DataError(f"{self.version} has no text column {column!r}; its columns: {there}. Name one of them.")
        return text


def _open(location: HubLocation) -> Any:
    """The streaming dataset. No code of the repository runs: `datasets` has dropped loading scripts."""
    from datasets import load_dataset

    return load_dataset(location.repository, location.subset, split="train", streaming=True, revision=location.revision)


@contextmanager
def explained(what: str, way_out: str) -> Iterator[None]:
    """What network and files raise becomes a `HubError` that says what could not be read, and the way out."""
    import httpx2
    from datasets.exceptions import DatasetsError

    try:
        yield
    except (OSError, EOFError, ValueError, httpx2.HTTPError, DatasetsError) as error:
        raise HubError(
            f"cannot read {what} from the Hugging Face hub: {type(error).__name__}: {str(error).rstrip('.')}. {way_out}"
        ) from error
