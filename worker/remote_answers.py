"""Small files of remote folders for somebody who waits: an answer within seconds, or the word that there is none.

What was found is remembered for a while, and that a folder is away for a shorter one. A question whose answer is late
goes on in its thread, and whoever asks next has what it brings: libraries of storage try again for longer than anybody
waits for a page or a submission. Everyone who asks the same at the same time shares one question.
"""

import threading
import time
from collections import OrderedDict
from concurrent.futures import Future
from typing import Final

from worker.errors import RemoteFolderError
from worker.remote_folder import RemoteFolder

LONGEST_SECONDS: Final = 4.0
"""Nobody waits longer for one answer."""
REMEMBERED_SECONDS: Final = 300.0
"""So long what was found counts: prepared data are never changed under their name."""
AWAY_SECONDS: Final = 60.0
"""So long a folder that did not answer is not asked again."""
MOST_REMEMBERED: Final = 64
"""Answers; the manifest of a thousand shards has 150 kB."""

Question = tuple[str, str]
"""The URL of a folder, the name of a file in it."""


class RemoteAnswers:
    """What one process has asked. Thread-safe."""

    def __init__(self, longest_seconds: float = LONGEST_SECONDS) -> None:
        self._longest_seconds = longest_seconds
        self._found: OrderedDict[Question, tuple[float, bytes]] = OrderedDict()
        self._away: dict[str, tuple[float, RemoteFolderError]] = {}
        self._asked: dict[Question, Future[bytes | None]] = {}
        self._folders: dict[str, RemoteFolder] = {}
        self._lock = threading.Lock()

    def read(self, url: str, name: str, remembered_seconds: float = REMEMBERED_SECONDS) -> bytes | None:
        """The content of a file; None where there is none. What is found is remembered for so long.

        Raises `RemoteFolderError`, where the folder did not answer in time, too.
        """
        with self._lock:
            if (away := self._away.get(url)) is not None and time.monotonic() < away[0]:
                raise _again(away[1])
            if (found := self._found.get((url, name))) is not None and time.monotonic() < found[0]:
                return found[1]
            question = self._asked.get((url, name)) or self._ask((url, name), remembered_seconds)
        try:
            return question.result(self._longest_seconds)
        except TimeoutError as late:
            error = RemoteFolderError(
                f"{url} gave no answer within {self._longest_seconds:g} s. Check the network and the address."
            )
            error.__cause__ = late
            self._note_away(url, error)
            raise error from late
        except RemoteFolderError as error:
            raise _again(error) from error.__cause__

    def _ask(self, question: Question, remembered_seconds: float) -> "Future[bytes | None]":
        answer = self._asked[question] = Future[bytes | None]()
        folder = self._folders.setdefault(question[0], RemoteFolder(question[0]))
        arguments = (folder, question, answer, remembered_seconds)
        threading.Thread(target=self._answer, args=arguments, name="remote-answer", daemon=True).start()
        return answer

    def _answer(
        self, folder: RemoteFolder, question: Question, answer: "Future[bytes | None]", remembered_seconds: float
    ) -> None:
        url, name = question
        try:
            content = folder.read(name)
        except RemoteFolderError as error:
            self._note_away(url, error)
            self._asked.pop(question)
            answer.set_exception(error)
            return
        with self._lock:
            self._away.pop(url, None)
            if content is not None and remembered_seconds > 0:
                self._found[question] = time.monotonic() + remembered_seconds, content
                self._found.move_to_end(question)
                if len(self._found) > MOST_REMEMBERED:
                    self._found.popitem(last=False)
            self._asked.pop(question)
        answer.set_result(content)

    def _note_away(self, url: str, error: RemoteFolderError) -> None:
        with self._lock:
            self._away[url] = time.monotonic() + AWAY_SECONDS, error


def _again(error: RemoteFolderError) -> RemoteFolderError:
    """The same words and cause, to be raised by somebody else."""
    same = RemoteFolderError(str(error))
    same.__cause__ = error.__cause__
    return same


ANSWERS: Final = RemoteAnswers()
"""Of this process."""
