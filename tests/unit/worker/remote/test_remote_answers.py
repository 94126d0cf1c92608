"""Answers of remote folders to somebody who waits: within seconds, or the word that there is none."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from worker.errors import RemoteFolderError
from worker.remote.folder import RemoteFolder, read_soon


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"file://{tmp_path}/remote"


def test_an_answer_is_what_the_folder_has_now(url: str) -> None:
    folder = RemoteFolder(url)
    assert read_soon(url, "a.json") is None
    for content in (b"1", b"2"):
        folder.write("a.json", content)
        assert read_soon(url, "a.json") == content


def test_nobody_waits_longer_than_the_bound_also_where_every_place_hangs(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_go, read = threading.Event(), RemoteFolder.read

    def hang(folder: RemoteFolder, name: str) -> bytes | None:
        assert let_go.wait(60)
        return read(folder, name)

    monkeypatch.setattr(RemoteFolder, "read", hang)
    monkeypatch.setattr("worker.remote.folder.LONGEST_SECONDS", 0.05)
    monkeypatch.setattr("worker.remote.folder._ASKING", ThreadPoolExecutor(1))
    for _ in range(2):
        with pytest.raises(RemoteFolderError, match=r"gave no answer within 0\.05 s") as raised:
            read_soon(url, "a.json")
        assert isinstance(raised.value.__cause__, TimeoutError)
    let_go.set()
    monkeypatch.setattr("worker.remote.folder.LONGEST_SECONDS", 60.0)
    assert read_soon(url, "a.json") is None, "a late answer gives its place back"


def test_a_fault_keeps_its_words_and_its_cause(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(folder: RemoteFolder, name: str) -> bytes:
        raise RemoteFolderError("away") from ConnectionError()

    monkeypatch.setattr(RemoteFolder, "read", away)
    with pytest.raises(RemoteFolderError, match="away") as raised:
        read_soon(url, "a.json")
    assert isinstance(raised.value.__cause__, ConnectionError)
