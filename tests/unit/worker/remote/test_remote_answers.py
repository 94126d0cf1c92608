"""Answers of remote folders to somebody who waits: within seconds, once for all who ask, and remembered for a while."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.factories.waiting import until
from worker.errors import RemoteFolderError
from worker.remote.folder import RemoteAnswers, RemoteFolder


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"file://{tmp_path}/remote"


class Slow:
    """Storage that answers when it is let; counts what it is asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open, self.asked = threading.Event(), list[str]()
        read = RemoteFolder.read

        def slow(folder: RemoteFolder, name: str) -> bytes | None:
            self.asked.append(name)
            assert self.open.wait(60)
            return read(folder, name)

        monkeypatch.setattr(RemoteFolder, "read", slow)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Slow:
    return Slow(monkeypatch)


def test_what_was_found_is_remembered_and_what_was_not_is_asked_for_again(url: str) -> None:
    answers, folder = RemoteAnswers(), RemoteFolder(url)
    assert answers.read(url, "a.json") is None
    folder.write("a.json", b"1")
    assert answers.read(url, "a.json") == b"1"
    folder.write("a.json", b"2")
    assert answers.read(url, "a.json") == b"1"
    assert answers.read(url, "b.json", remembered_seconds=0) is None
    folder.write("b.json", b"1")
    assert answers.read(url, "b.json", remembered_seconds=0) == b"1"
    folder.write("b.json", b"2")
    assert answers.read(url, "b.json", remembered_seconds=0) == b"2"


def test_what_is_remembered_is_forgotten_in_time(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    answers, folder = RemoteAnswers(), RemoteFolder(url)
    folder.write("a.json", b"1")
    assert answers.read(url, "a.json", remembered_seconds=0.2) == b"1"
    folder.write("a.json", b"2")
    until(lambda: answers.read(url, "a.json") == b"2", "the first answer is forgotten")
    monkeypatch.setattr("worker.remote.folder.MOST_REMEMBERED", 1)
    folder.write("b.json", b"1")
    assert answers.read(url, "b.json") == b"1"
    folder.write("a.json", b"3")
    assert answers.read(url, "a.json") == b"3"


def test_nobody_waits_longer_than_the_bound_and_a_late_answer_is_not_lost(url: str, slow: Slow) -> None:
    RemoteFolder(url).write("a.json", b"1")
    answers = RemoteAnswers(longest_seconds=0.2)
    for _ in range(2):
        with pytest.raises(RemoteFolderError, match=r"gave no answer within 0\.2 s") as raised:
            answers.read(url, "a.json")
        assert isinstance(raised.value.__cause__, TimeoutError)
    assert slow.asked == ["a.json"]
    slow.open.set()
    until(lambda: answer_of(answers, url), "the late answer is there")
    assert answers.read(url, "a.json") == b"1"
    assert slow.asked == ["a.json"]


def answer_of(answers: RemoteAnswers, url: str) -> bytes | None:
    """None where there is none within the bound."""
    try:
        return answers.read(url, "a.json")
    except RemoteFolderError:
        return None


def test_those_who_ask_the_same_share_one_question(url: str, slow: Slow) -> None:
    RemoteFolder(url).write("a.json", b"1")
    answers = RemoteAnswers(longest_seconds=60)
    with ThreadPoolExecutor(4) as several:
        asked = [several.submit(answers.read, url, "a.json") for _ in range(4)]
        until(lambda: slow.asked, "the folder is asked")
        slow.open.set()
        assert [each.result() for each in asked] == [b"1"] * 4
    assert slow.asked == ["a.json"]


def test_a_folder_that_is_away_is_not_asked_again_at_once(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def away(folder: RemoteFolder, name: str) -> bytes:
        asked.append(name)
        raise RemoteFolderError("away") from ConnectionError()

    answers = RemoteAnswers()
    with monkeypatch.context() as patch:
        patch.setattr(RemoteFolder, "read", away)
        for name in ("a.json", "b.json"):
            with pytest.raises(RemoteFolderError, match="away") as raised:
                answers.read(url, name)
            assert isinstance(raised.value.__cause__, ConnectionError)
    assert asked == ["a.json"]
    assert answers.read("file:///nowhere-at-all", "a.json") is None  # another folder is
