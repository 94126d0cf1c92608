"""A small dataset made in memory, under the name of a real one, for tests whose point is not the real data."""

import random
from collections.abc import Iterator
from pathlib import Path

from worker.data.documents import Document
from worker.data.manifest import Manifest
from worker.data.preparation import prepare


class MadeSource:
    """`count` documents of words in random order: a model learns their letters in a few steps."""

    version = "made"
    skipped_documents = 0

    def __init__(self, count: int = 300) -> None:
        self.count = count

    def documents(self) -> Iterator[Document]:
        """Yield the same documents every time."""
        draw = random.Random(0)
        for number in range(self.count):
            words = draw.choices(("def", "return", "self", "import", "for", "in", "=", "(x)"), k=80)
            yield Document(name=f"made/{number:04d}.py", text=" ".join(words))


def prepare_made_dataset(dataset_folder: Path) -> Manifest:
    """Prepare it where `ensure_dataset("python-stdlib", "byte", dataset_folder)` will find it."""
    return prepare(MadeSource(), "python-stdlib", "byte", dataset_folder / "python-stdlib-byte")
