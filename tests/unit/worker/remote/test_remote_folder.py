"""Remote folders by their URLs: which are understood, what their files are, and how long somebody waits for them."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from worker.errors import RemoteFolderError
from worker.remote.checkpoints import RemoteCheckpoint, complete_checkpoints, parse_checkpoint_name
from worker.remote.folder import RemoteFolder, find_refusal, read_soon, retry_while_away


@pytest.mark.parametrize("url", ["s3://bucket", "s3://bucket/a/prefix", "file:///mnt/shared"])
def test_shared_storage_is_taken(url: str) -> None:
    assert find_refusal(url) is None


@pytest.mark.parametrize(
    ("url", "way_out"),
    [
        ("bucket/prefix", "write s3://BUCKET/PREFIX"),
        ("/mnt/shared", "write s3://BUCKET/PREFIX"),
        ("s4://bucket", "write s3://BUCKET/PREFIX"),
        ("memory://x", "write s3://BUCKET/PREFIX"),
        ("simplecache::s3://bucket", "write s3://BUCKET/PREFIX"),
        ("s3://", "write s3://BUCKET/PREFIX"),
        ("s3://key:secret@bucket", "put keys into the environment"),
        ("s3://key:sec/secret@bucket/prefix", "put keys into the environment"),
        ("s3://key:secret", "put keys into the environment"),
        ("s3://bucket?secret=x", "put keys into the environment"),
    ],
)
def test_what_no_other_machine_could_read_or_holds_secrets_is_refused(url: str, way_out: str) -> None:
    refusal = find_refusal(url)
    assert refusal is not None and way_out in refusal
    assert "secret" not in refusal


def test_a_missing_package_is_named_with_the_command_that_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worker.remote.folder.importlib.util.find_spec", lambda name: None)
    assert "pip install '.[s3]'" in (find_refusal("s3://bucket") or "")


def test_files_come_back_and_go(tmp_path: Path) -> None:
    folder = RemoteFolder(f"file://{tmp_path}/there/")
    assert (folder.sizes(), folder.read("a/b.json")) == ({}, None)
    folder.write("a/b.json", b"{}")
    (tmp_path / "here").write_bytes(b"12345")
    folder.subfolder("a").put(tmp_path / "here", "c.pt")
    assert folder.sizes() == {"a/b.json": 2, "a/c.pt": 5}
    folder.fetch("a/c.pt", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == b"12345"
    folder.remove(["a/c.pt", "a/never.pt"])
    assert folder.subfolder("a").sizes() == {"b.json": 2}
    with pytest.raises(RemoteFolderError, match="cannot be read"):
        folder.fetch("a/c.pt", tmp_path / "back")


def test_patience_ends_and_obedience_comes_first() -> None:
    def away() -> None:
        raise RemoteFolderError("away") from ConnectionError()

    def leave() -> None:
        raise KeyboardInterrupt

    with pytest.raises(RemoteFolderError, match="away"):
        retry_while_away(away, lambda: None, patience_seconds=0)
    with pytest.raises(KeyboardInterrupt):
        retry_while_away(away, leave)
    with pytest.raises(RemoteFolderError, match="must be an URL"):
        retry_while_away(lambda: RemoteFolder("no-such-scheme://x").sizes(), leave)
    tries: Iterator[Exception | None] = iter([ConnectionError("away"), None])

    def back_soon() -> str:
        if (error := next(tries)) is not None:
            raise RemoteFolderError("away") from error
        return "there"

    assert retry_while_away(back_soon, lambda: None) == "there"


def test_a_checkpoint_has_both_of_its_files() -> None:
    whole = RemoteCheckpoint(attempt=2, step=120)
    assert whole.stem == "attempt-0002/step-000000120"
    assert parse_checkpoint_name(f"{whole.stem}.pt") == (whole, ".pt")
    assert parse_checkpoint_name("attempt-0002/notes.txt") is None
    names = [f"{whole.stem}.pt", f"{whole.stem}.json", "attempt-0003/step-000000130.pt"]
    assert complete_checkpoints(names) == [whole]


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
