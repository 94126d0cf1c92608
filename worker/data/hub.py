"""Rows of datasets on the Hugging Face hub. Importing this takes a second, so only what reads from the hub does."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
from datasets import load_dataset
from datasets.exceptions import DatasetsError

from worker.errors import HubError


def open_stream(repository: str, subset: str | None, *, split: str, revision: str) -> Any:
    """Return the streaming dataset. No code of the repository runs: `datasets` has dropped loading scripts."""
    return load_dataset(repository, subset, split=split, streaming=True, revision=revision)


@contextmanager
def explain_hub_errors(noun: str, way_out: str) -> Iterator[None]:
    """Explain errors of network and files by a `HubError` that says what could not be read, and the remedy."""
    try:
        yield
    except (OSError, EOFError, ValueError, httpx2.HTTPError, DatasetsError) as error:
        raise HubError(
            f"cannot read {noun} from the Hugging Face hub: {type(error).__name__}: {str(error).rstrip('.')}. {way_out}"
        ) from error
