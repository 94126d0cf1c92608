"""A small dataset made in memory, under the name of a real one, for tests whose point is not the real data."""

import random
from collections.abc import Iterator
from pathlib import Path

from worker.data.documents import Document, LocalSource
from worker.data.manifest import Manifest, Recipe
from worker.data.preparation import prepare


class MadeSource(LocalSource):
    """`count` documents of words in random order: a model learns their letters in a few steps."""

    version = "made"

    def __init__(self, count: int = 300) -> None:
        self.count = count

    def read(self) -> Iterator[Document]:
        """Yield the same documents every time."""
        draw = random.Random(0)
        for number in range(self.count):
            words = draw.choices(("def", "return", "self", "import", "for", "in", "=", "(x)"), k=80)
            yield Document(name=f"made/{number:04d}.py", text=" ".join(words))


def made_recipe(tokenizer: str = "byte", *, section_bytes: int = 2**20) -> Recipe:
    """Return the recipe of the made dataset."""
    return Recipe(dataset="python-stdlib", tokenizer=tokenizer, source_version="made", section_bytes=section_bytes)


def prepare_made_dataset(dataset_folder: Path) -> Manifest:
    """Prepare it where `ensure_dataset("python-stdlib", "byte", dataset_folder)` will find it."""
    return prepare(MadeSource(), made_recipe(), dataset_folder / "python-stdlib-byte")
