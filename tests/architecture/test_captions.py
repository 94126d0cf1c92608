"""ARCHITECTURE.md has exactly one caption for every Python file of the product: `| `path` | caption |`."""

import re
from collections import Counter

from tests.architecture.tree import REPOSITORY, product_files

CAPTION = re.compile(r"^\| `(?P<path>[^`]+\.py)` \| (?P<caption>\S.*) \|$", re.MULTILINE)


def captions() -> list[tuple[str, str]]:
    """(path, caption) of every caption line."""
    text = (REPOSITORY / "ARCHITECTURE.md").read_text(encoding="utf-8")
    return [(found["path"], found["caption"]) for found in CAPTION.finditer(text)]


def test_every_file_has_a_caption():
    missing = set(product_files()) - {path for path, _ in captions()}
    assert sorted(missing) == []


def test_every_caption_has_its_file():
    gone = {path for path, _ in captions()} - set(product_files())
    assert sorted(gone) == []


def test_no_file_has_two_captions():
    counts = Counter(path for path, _ in captions())
    assert [path for path, count in counts.items() if count > 1] == []
