"""Streaming from the hub, by the real library from a local repository with the real layouts."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.architecture.tree import REPOSITORY
from tests.factories.repository import made_texts, make_repository
from worker.catalog import datasets
from worker.catalog.datasets import HubLocation
from worker.data.sources import HubSource
from worker.errors import DataError, HubError


@pytest.fixture(scope="module")
def repositories(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one repository for each layout, by the dataset's name."""
    folder = tmp_path_factory.mktemp("hub")
    for name in ("c4", "fineweb"):
        make_repository(folder / name, name)
    return folder


def location(name: str, repositories: Path) -> HubLocation:
    """The catalog's own location, with the repository replaced."""
    entry = datasets.dataset(name)
    assert entry is not None and entry.hub is not None
    return replace(entry.hub, repository=str(repositories / name))


@pytest.mark.parametrize("name", ["c4", "fineweb"])
def test_every_text_comes_in_the_order_of_the_files(name: str, repositories: Path) -> None:
    documents = list(HubSource(location(name, repositories)).documents())
    assert [document.text for document in documents] == made_texts()
    assert len({document.name for document in documents}) == len(documents)


@pytest.mark.parametrize("name", ["c4", "fineweb"])
@pytest.mark.parametrize("taken", [1, 30, 89])
def test_reading_goes_on_behind_any_document_in_a_fresh_object(name: str, taken: int, repositories: Path) -> None:
    """The cursor is JSON; the first document of a file and the last of all are places like any other."""
    first = HubSource(location(name, repositories))
    stream = first.documents()
    earlier_texts = [next(stream).text for _ in range(taken)]
    cursor = json.loads(json.dumps(first.cursor()))
    later_texts = [document.text for document in HubSource(location(name, repositories)).documents(cursor)]
    assert earlier_texts + later_texts == made_texts()


def test_another_column_is_refused_with_those_that_there_are(repositories: Path) -> None:
    source = HubSource(replace(location("c4", repositories), column="body"))
    with pytest.raises(DataError, match=r"'body'.*text, url"):
        next(source.documents())


def test_a_repository_without_the_subset_is_no_crash(repositories: Path) -> None:
    source = HubSource(replace(location("c4", repositories), subset="de"))
    with pytest.raises(HubError, match=r"allenai/c4|c4.*de"):
        next(source.documents())


@pytest.mark.parametrize("name", ["openwebtext", "c4", "fineweb"])
def test_locations_are_pinned_to_commits(name: str) -> None:
    entry = datasets.dataset(name)
    assert entry is not None and entry.hub is not None
    assert len(entry.hub.revision) == 40
    assert set(entry.hub.revision) <= set("0123456789abcdef")


OFFLINE = """
from pathlib import Path
from worker.data.tokenizers import tokenizer_file
from worker.data.sources import source_of
from worker.data.conversations import UltraFeedback
from worker.errors import HubError
from worker.data.weights import find_weights
for what in (
    lambda: next(source_of("c4").documents()),
    lambda: tokenizer_file("gpt2", None),
    lambda: find_weights("openai-community/gpt2", Path(".")),
    lambda: next(UltraFeedback().conversations()),
):
    try:
        what()
    except HubError as error:
        print(error.kind.value, str(error).replace("\\n", " "))
"""


def test_a_hub_that_cannot_be_reached_is_said_with_the_way_out(tmp_path: Path) -> None:
    """Dataset, tokenizer, weights and conversations; another attempt may find the network again."""
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)}
    result = subprocess.run(
        [sys.executable, "-c", OFFLINE], cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=True
    )
    lines = result.stdout.splitlines()
    assert all(line.startswith("infrastructure ") for line in lines)
    named = (
        ("allenai/c4", "HF_ENDPOINT"),
        ("openai-community/gpt2", "--tokenizer-file"),
        ("openai-community/gpt2",),
        ("HuggingFaceH4/ultrafeedback_binarized", "`chats`"),
    )
    for line, names in zip(lines, named, strict=True):
        assert all(name in line for name in names)
