"""Prepared data in a remote folder: fetched whole, resumed, checked; nothing is copied twice or replaced."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.factories.dataset import MadeSource, made_recipe, prepare_made_dataset
from tests.factories.specification import made_spec
from worker.data.conversations import ensure_conversations
from worker.data.manifest import Manifest
from worker.data.preparation import prepare
from worker.data.prepared import missing_data
from worker.data.remote_datasets import fetch, fetch_missing, object_name, push
from worker.data.shards import open_dataset
from worker.errors import CorruptShardError, DataError, RemoteFolderError
from worker.remote.folder import RemoteFolder
from worker.spec.run import DataSpec

NAME = "python-stdlib-byte"


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"file://{tmp_path}/remote"


@pytest.fixture
def manifest(tmp_path: Path, url: str) -> Manifest:
    """Return the manifest of the data that are prepared in `first` and copied."""
    result = prepare_made_dataset(tmp_path / "first")
    push(tmp_path / "first" / NAME, url)
    return result


def test_another_machine_has_the_same_data(tmp_path: Path, url: str, manifest: Manifest) -> None:
    data = DataSpec()
    fetch_missing(data, tmp_path / "second", url)
    assert open_dataset(tmp_path / "second" / NAME).manifest == manifest
    assert [path.name for path in (tmp_path / "second").iterdir() if path.is_dir()] == [NAME]
    modified_ns = (tmp_path / "second" / NAME).stat().st_mtime_ns
    fetch_missing(data, tmp_path / "second", "file:///nowhere")
    assert (tmp_path / "second" / NAME).stat().st_mtime_ns == modified_ns
    fetch_missing(DataSpec(tokenizer="bpe-512"), tmp_path / "second", url)  # not there: the run says what to do
    assert not (tmp_path / "second" / "python-stdlib-bpe-512").exists()


def test_what_was_fetched_before_a_kill_is_kept(
    tmp_path: Path, url: str, manifest: Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched: list[str] = []
    original = RemoteFolder.fetch

    def counted(self: RemoteFolder, name: str, path: Path, check_stop: Callable[[], None]) -> None:
        fetched.append(name)
        if len(fetched) == 2:
            path.write_bytes(b"half of it")
            raise KeyboardInterrupt
        original(self, name, path, check_stop)

    monkeypatch.setattr(RemoteFolder, "fetch", counted)
    with pytest.raises(KeyboardInterrupt):
        fetch(RemoteFolder(url).subfolder(NAME), tmp_path / NAME)
    assert fetch(RemoteFolder(url).subfolder(NAME), tmp_path / NAME)
    first, second = (object_name(shard.file, shard.sha256) for shard in manifest.shards)
    assert fetched == [first, second, second]
    assert open_dataset(tmp_path / NAME).manifest == manifest


def test_a_damaged_file_is_refused_and_copied_again_once_it_is_deleted(
    tmp_path: Path, url: str, manifest: Manifest
) -> None:
    shard = manifest.shards[0]
    damaged = f"{NAME}/{object_name(shard.file, shard.sha256)}"
    RemoteFolder(url).write(damaged, b"something else")
    with pytest.raises(CorruptShardError, match="Delete it there"):
        fetch_missing(DataSpec(), tmp_path / "second", url)
    RemoteFolder(url).remove([damaged])
    push(tmp_path / "first" / NAME, url)
    fetch_missing(DataSpec(), tmp_path / "second", url)
    assert open_dataset(tmp_path / "second" / NAME).manifest == manifest


def test_nothing_is_copied_twice_and_other_data_are_refused(tmp_path: Path, url: str, manifest: Manifest) -> None:
    messages: list[str] = []
    push(tmp_path / "first" / NAME, url, messages.append)
    assert messages == []
    prepare(MadeSource(count=200), made_recipe(), tmp_path / "other" / NAME)
    with pytest.raises(DataError, match="holds other data under that name"):
        push(tmp_path / "other" / NAME, url)


def test_a_service_without_the_data_finds_them_there(tmp_path: Path, url: str, manifest: Manifest) -> None:
    workload = made_spec().workload
    pinned = workload.model_copy(update={"data": workload.data.model_copy(update={"data_hash": manifest.data_hash})})
    assert missing_data(pinned, tmp_path / "empty", url) == []
    wrong = workload.model_copy(update={"data": workload.data.model_copy(update={"data_hash": "0" * 64})})
    (fault,) = missing_data(wrong, tmp_path / "empty", url)
    assert "data.data_hash asks for" in fault
    own_workload = workload.model_copy(update={"data": workload.data.model_copy(update={"dataset": "own/none"})})
    (fault,) = missing_data(own_workload, tmp_path / "empty", url)
    assert "is not prepared" in fault
    (fault,) = missing_data(own_workload, tmp_path / "empty", "no-such-scheme://bucket")
    assert "URL" in fault
    assert missing_data(workload, tmp_path / "empty", "no-such-scheme://bucket") == []  # the run prepares it


def test_storage_that_is_away_refuses_nothing(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(folder: RemoteFolder, name: str) -> bytes:
        raise RemoteFolderError("away") from ConnectionError()

    monkeypatch.setattr(RemoteFolder, "read", away)
    workload = made_spec().workload
    own_workload = workload.model_copy(update={"data": workload.data.model_copy(update={"dataset": "own/none"})})
    for asking in (workload, own_workload):
        assert missing_data(asking, tmp_path / "empty", url) == []


def test_a_manifest_that_names_files_elsewhere_is_refused(tmp_path: Path, url: str) -> None:
    ensure_conversations("chats", "byte", tmp_path / "first")
    text = (tmp_path / "first" / "chats-byte" / "conversations.json").read_text()
    RemoteFolder(url).subfolder("chats-byte").write("conversations.json", text.replace("train.bounds", "../x").encode())
    with pytest.raises(CorruptShardError, match="names files elsewhere"):
        fetch(RemoteFolder(url).subfolder("chats-byte"), tmp_path / "second" / "chats-byte")
