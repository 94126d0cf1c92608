"""Where the command line prints: Rich on a terminal, plain 120-column text in a log or a pipe."""

import json
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext, redirect_stdout
from pathlib import Path
from typing import IO

from pydantic_core import to_jsonable_python
from rich.console import Console

LOG_WIDTH = 120
"""Columns outside a terminal, where nothing can be asked for its width."""


def console(stream: IO[str] | None = None) -> Console:
    """A console on stdout (or `stream`): no markup in data, no colours outside a terminal."""
    target = stream or sys.stdout
    width = None if target.isatty() else int(os.environ.get("COLUMNS") or LOG_WIDTH)
    return Console(file=target, width=width, highlight=False, markup=False, emoji=False)


def complain(message: str) -> None:
    """Print one message to stderr, never wrapped, so that logs can be searched for it."""
    print(message, file=sys.stderr)


def plain(text: str) -> str:
    """`text` without control characters: a name that somebody else chose must not move this terminal's cursor."""
    return "".join(character if character.isprintable() else "?" for character in text)


def print_json(value: object) -> None:
    """Print records, or lists and mappings of them, as JSON and nothing else on stdout."""
    print(json.dumps(to_jsonable_python(value), indent=2, allow_nan=False))


@contextmanager
def messages_on_stderr(*, as_json: bool) -> Iterator[None]:
    """Where JSON will be all that stdout has, what is told meanwhile goes to stderr."""
    with redirect_stdout(sys.stderr) if as_json else nullcontext():
        yield


def say_files(paths: Iterable[Path], *, as_json: bool) -> None:
    """Say which files were written, each as soon as it is there; as JSON all of them at the end."""
    files = []
    for path in paths:
        files.append({"file": path, "bytes": path.stat().st_size})
        if not as_json:
            print(f"{path}  {path.stat().st_size:,} bytes")
    if as_json:
        print_json(files)
