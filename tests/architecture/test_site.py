"""The site of the documents: every page has its place in the navigation, all of them stay within their budget of
words, and docs/reference is what the code says today. `make check` builds it, where a link or an anchor that leads
nowhere is an error."""

import tomllib
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

import pytest

from api import reference_pages
from tests.architecture.tree import REPOSITORY

SITE = tomllib.loads((REPOSITORY / "zensical.toml").read_text(encoding="utf-8"))["project"]
MOST_WORDS = 35_000
"""The most words of all pages together, those of the reference included: whoever adds a page shortens another one."""


def navigated(entries: list[dict[str, Any]]) -> Iterator[str]:
    """The pages of a navigation, in its order."""
    for entry in entries:
        for target in entry.values():
            if isinstance(target, str):
                yield target
            else:
                yield from navigated(target)


def pages() -> set[str]:
    """The Markdown files of the site."""
    paths = {path.relative_to(REPOSITORY / "docs").as_posix() for path in (REPOSITORY / "docs").rglob("*.md")}
    return {
        path
        for path in paths
        if not any(PurePosixPath(path).match(glob) for glob in SITE["plugins"]["exclude"]["glob"])
    }


def test_every_page_has_one_place_in_the_navigation() -> None:
    listed = list(navigated(SITE["nav"]))
    assert len(listed) == len(set(listed))
    assert set(listed) == pages()
    assert [name for entry in SITE["nav"] for name in entry] == ["Start", "Use", "Understand", "Reference"]


def test_the_pages_are_within_their_budget_of_words() -> None:
    texts = [(REPOSITORY / "docs" / page).read_text(encoding="utf-8") for page in pages()]
    assert sum(len(text.split()) for text in texts) <= MOST_WORDS


FOLDER = REPOSITORY / "docs" / "reference"
NAMES = ["../settings.md", *sorted(path.name for path in FOLDER.iterdir())]


@pytest.fixture(scope="module")
def written() -> dict[str, str]:
    return reference_pages.pages()


@pytest.mark.parametrize("name", NAMES)
def test_a_page_is_as_the_code_has_it(name: str, written: dict[str, str]):
    assert (FOLDER / name).read_text() == written[name], "run `python -m api.reference_pages docs/reference`"


def test_every_page_has_its_file(written: dict[str, str]):
    assert sorted(written) == NAMES
