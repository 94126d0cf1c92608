"""docs/reference is what the code says today."""

import pytest

from api.reference_pages import pages
from tests.architecture.tree import REPOSITORY

FOLDER = REPOSITORY / "docs" / "reference"


@pytest.fixture(scope="module")
def written() -> dict[str, str]:
    return pages()


@pytest.mark.parametrize("name", sorted(path.name for path in FOLDER.iterdir()))
def test_a_page_is_as_the_code_has_it(name: str, written: dict[str, str]):
    assert (FOLDER / name).read_text() == written[name], "run `python -m api.reference_pages docs/reference`"


def test_the_pages_have_what_a_reader_looks_up(written: dict[str, str]):
    assert sorted(written) == sorted(path.name for path in FOLDER.iterdir())
    assert "## `adapm-bench submit FILE`" in written["cli.md"]
    assert "| `--ray-address RAY_ADDRESS` |" in written["cli.md"]
    assert "| `POST /v1/experiments` |" in written["rest.md"]
    assert "| `batch_sequences` | integer ≥ 1, ≤ 65536 | `8` |" in written["specifications.md"]
    assert "| `rank_ratio` | a number in (0, 1] | `0.05` |" in written["optimizers.md"]
