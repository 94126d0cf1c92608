"""docs/reference is what the code says today."""

import pytest

from api.reference_pages import pages
from tests.architecture.tree import REPOSITORY

FOLDER = REPOSITORY / "docs" / "reference"
NAMES = ["../settings.md", *sorted(path.name for path in FOLDER.iterdir())]


@pytest.fixture(scope="module")
def written() -> dict[str, str]:
    return pages()


@pytest.mark.parametrize("name", NAMES)
def test_a_page_is_as_the_code_has_it(name: str, written: dict[str, str]):
    assert (FOLDER / name).read_text() == written[name], "run `python -m api.reference_pages docs/reference`"


def test_every_page_has_its_file(written: dict[str, str]):
    assert sorted(written) == NAMES
