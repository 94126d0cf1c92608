"""A folder somewhere else, by its URL: S3 and what speaks its protocol, or whatever else fsspec knows (torch-free).

    s3://bucket/prefix    whoever uses it shows the keys of its environment or AWS profile; an URL holds none
    file:///mnt/shared    a mounted file system

Every fault is a `RemoteFolderError`, whichever library met it. What is written appears whole or not at all where the
storage promises that, as S3 does; who relies on it elsewhere writes a small file last that says what there must be.
"""

import importlib.util
import logging
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

from worker.backoff import backoff
from worker.errors import DISK_FULL, RemoteFolderError, WorkerError

logger = logging.getLogger(__name__)

Answer = TypeVar("Answer")

PATIENCE_SECONDS: Final = 600.0
"""The time that a run waits for files that it cannot start without."""

PACKAGES: Final = {"s3": "in the project's folder: pip install '.[s3]'"}
"""The packages with the library of a scheme; of others fsspec itself says it."""
OPTIONS: Final[dict[str, dict[str, Any]]] = {
    "s3": {
        # Of botocore, whose own patience is a minute for each of five tries.
        "config_kwargs": {"connect_timeout": 5, "read_timeout": 30, "retries": {"max_attempts": 2}},
    },
    "file": {"auto_mkdir": True},
}
"""The options of a scheme's file system, beside its own defaults."""
NOT_SHARED: Final = frozenset({"memory", "data", "http", "https"})
"""Schemes that no other machine could read, or nobody could write."""


class RemoteFolder:
    """The files below an URL, by their names: `a/b.json`. Nothing is remembered between two calls."""

    def __init__(self, url: str) -> None:
        """Open the folder without asking the other side yet."""
        self.url = url.rstrip("/")

    def subfolder(self, name: str) -> "RemoteFolder":
        """Return the folder of that name in this one."""
        return RemoteFolder(f"{self.url}/{name}")

    def sizes(self, folder: str = "") -> dict[str, int]:
        """Return the size in bytes of every file at any depth, or of those below `folder`; empty if there is no such
        folder."""
        files, root = self.file_system
        entries = self._call("looked through", lambda: files.find(f"{root}/{folder}".rstrip("/"), detail=True))
        return {name.removeprefix(f"{root}/"): int(entry["size"]) for name, entry in entries.items()}

    def read(self, name: str) -> bytes | None:
        """Return the content of a small file; None if there is none."""
        files, root = self.file_system
        path = f"{root}/{name}"
        return self._call("read", lambda: _none_if_missing(lambda: bytes(files.cat_file(path))))

    def write(self, name: str, content: bytes) -> None:
        """Write a small file."""
        files, root = self.file_system
        self._call("written", lambda: files.pipe_file(f"{root}/{name}", content))

    def put(self, path: Path, name: str) -> None:
        """Copy the file at `path` there."""
        files, root = self.file_system
        self._call("written", lambda: files.put_file(str(path), f"{root}/{name}"))

    def fetch(self, name: str, path: Path, check_stop: Callable[[], None] = lambda: None) -> None:
        """Copy a file from there to `path`; `check_stop` is called as its parts arrive, and ends it by raising. Raises
        `OSError` if this machine's disk is full."""
        files, root = self.file_system
        parts = _fsspec().Callback(hooks={"stop": lambda *_: check_stop()})
        self._call("read", lambda: files.get_file(f"{root}/{name}", str(path), callback=parts), passing=DISK_FULL)

    def remove(self, names: Iterable[str]) -> None:
        """Delete files; one that is gone already is not a fault."""
        files, root = self.file_system
        for path in [f"{root}/{name}" for name in names]:
            self._call("cleared", partial(_none_if_missing, partial(files.rm_file, path)))

    @cached_property
    def file_system(self) -> tuple[Any, str]:
        """fsspec's file system, and this folder's path in it."""
        if refusal := find_refusal(self.url):
            raise RemoteFolderError(refusal)

        def open_files() -> tuple[Any, str]:
            own_options = OPTIONS.get(urlsplit(self.url).scheme, {})
            options = {"skip_instance_cache": True, "use_listings_cache": False, **own_options}
            files, root = _fsspec().url_to_fs(self.url, **options)
            return files, str(root).rstrip("/")

        return self._call("opened", open_files)

    def _call(self, verb: str, question: Callable[[], Answer], passing: frozenset[int] = frozenset()) -> Answer:
        try:
            return question()
        except WorkerError:  # of whoever is obeyed meanwhile
            raise
        except Exception as error:
            if isinstance(error, OSError) and error.errno in passing:
                raise
            raise RemoteFolderError(
                f"{self.url} cannot be {verb}: {_gist(error)}. "
                "Check the address, the network and the keys in this process's environment."
            ) from error


def find_refusal(url: str) -> str | None:
    """Return the reason why an URL names no folder that several machines can share, in a sentence with the remedy; None
    if it may."""
    from fsspec.registry import known_implementations  # type: ignore[import-untyped]  # it publishes no types

    parts = urlsplit(url)
    implementation = known_implementations.get(parts.scheme)
    if "::" in url or implementation is None or parts.scheme in NOT_SHARED:
        return "must be an URL of shared storage; write s3://BUCKET/PREFIX, or file:///FOLDER for a mounted one"
    # A secret may hold a slash, at which the name of the host would end.
    named = parts.scheme == "s3" and ":" in parts.netloc and not parts.netloc.startswith("arn:")
    if "@" in url or named or parts.query:
        return "an URL with a name, a password or a query is kept nowhere; put keys into the environment"
    if not (parts.netloc or parts.path.strip("/")):
        return f"names no folder; write {parts.scheme}://BUCKET/PREFIX"
    if importlib.util.find_spec(implementation["class"].partition(".")[0]) is None:
        return f"its package is missing; {PACKAGES.get(parts.scheme, implementation.get('err', 'install it'))}"
    return None


def retry_while_away(
    action: Callable[[], Answer], check_stop: Callable[[], None], patience_seconds: float = PATIENCE_SECONDS
) -> Answer:
    """Return the result of `action`, tried again while its remote folder is away; then raise its `RemoteFolderError`.

    `check_stop` is called meanwhile, and raises where there is no use in waiting any longer.
    """
    deadline = time.monotonic() + patience_seconds
    for pause_seconds in backoff(longest_seconds=30.0):
        try:
            return action()
        except RemoteFolderError as error:
            is_final = error.__cause__ is None  # refused before it was asked: no package, no such scheme
            if is_final or time.monotonic() > deadline:
                raise
            logger.warning("waiting: %s", error)
        until = time.monotonic() + pause_seconds
        while (seconds_left := until - time.monotonic()) > 0:
            check_stop()
            time.sleep(min(seconds_left, 0.2))
    raise AssertionError("backoff() never ends")


def _fsspec() -> Any:
    import fsspec  # type: ignore[import-untyped]  # as above

    return fsspec


def _none_if_missing(question: Callable[[], Answer]) -> Answer | None:
    try:
        return question()
    except FileNotFoundError:
        return None


def _gist(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0].rstrip('.')}" if lines else type(error).__name__


LONGEST_SECONDS: Final = 4.0
"""Nobody waits longer for a page or a submission."""
_ASKING: Final = ThreadPoolExecutor(16, "remote-answer")
"""Questions at once: libraries of storage try again for longer than anybody waits, and each hung one is a thread."""


def read_soon(url: str, name: str) -> bytes | None:
    """Return the content of a small file in the folder of that URL, for somebody who waits; None if there is none.

    Raises `RemoteFolderError`, also where there is no answer within `LONGEST_SECONDS`.
    """
    try:
        return _ASKING.submit(lambda: RemoteFolder(url).read(name)).result(LONGEST_SECONDS)
    except TimeoutError as late:
        raise RemoteFolderError(
            f"{url} gave no answer within {LONGEST_SECONDS:g} s. Check the network and the address."
        ) from late
