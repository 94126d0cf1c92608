"""The output of the command line (Rich on a terminal, plain 120-column text in a log or a pipe), and the exit codes."""

import json
import os
import shlex
import shutil
import sys
import time
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Annotated, Literal, Never, Self

import typer
from pydantic_core import to_jsonable_python
from rich import box
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

FAILED = 1
"""The exit code of a verb that failed, was refused or did not find its subject."""
BAD_INPUT = 2
UNREACHABLE = 3
INTERRUPTED = 130
"""The exit code that shells give a command that Ctrl-C ended: 128 + SIGINT."""

LINE_SECONDS = 5.0
"""The shortest time between two lines of progress without a terminal, so that a log stays short."""
LOG_WIDTH = 120
"""Columns outside a terminal, where nothing can be asked for its width."""

PROGRAM = "adapm-bench"

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]


def console() -> Console:
    """Return a console on stdout: no markup in data, no colours outside a terminal."""
    width = None if sys.stdout.isatty() else int(os.environ.get("COLUMNS") or LOG_WIDTH)
    return Console(file=sys.stdout, width=width, highlight=False, markup=False, emoji=False)


def program() -> str:
    """Return the beginning of a command to copy: `adapm-bench` if the shell finds this program by it, else the path of
    this call, such as `.venv/bin/adapm-bench`."""
    called = Path(sys.argv[0])
    if called.name != PROGRAM or not called.exists():
        return PROGRAM
    path = shutil.which(PROGRAM)
    return PROGRAM if path is not None and called.samefile(path) else shlex.quote(str(called))


def complain(message: str) -> None:
    """Print a message to stderr, never wrapped, so that logs can be searched for it."""
    print("\n".join(map(plain, message.splitlines())), file=sys.stderr)


def fail(message: str, code: int = FAILED) -> Never:
    """Complain, and end the command with an exit code."""
    complain(message)
    raise typer.Exit(code) from None


def refuse(message: str) -> Never:
    """Say what is wrong with the input, and end the command with the exit code for that."""
    fail(message, BAD_INPUT)


def plain(text: str) -> str:
    """Return `text` without control characters: a name from somebody else must not move this terminal's cursor."""
    spaced = text.replace("\N{NO-BREAK SPACE}", " ")
    return "".join(character if character.isprintable() else "?" for character in spaced)


def print_json(value: object) -> None:
    """Print records, or lists and mappings of them, as JSON and nothing else on stdout."""
    print(json.dumps(to_jsonable_python(value), indent=2, allow_nan=False))


class ProgressLine:
    """A line on stderr that says how far something is: on a terminal over the line before, else now and then."""

    def __init__(self, *, quiet: bool = False) -> None:
        """`quiet` prints nothing."""
        self._quiet, self._is_live = quiet, sys.stderr.isatty()
        self._pause_seconds = 0.2 if self._is_live else LINE_SECONDS
        self._printed_at = float("-inf")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_live and not self._quiet:
            print(file=sys.stderr)

    def show(self, text: str, *, last: bool = False) -> None:
        """Print the line, unless one has just been printed; the `last` one always."""
        if self._quiet or (time.monotonic() - self._printed_at < self._pause_seconds and not last):
            return
        self._printed_at = time.monotonic()
        start, end = ("\r\x1b[K", "") if self._is_live else ("", "\n")
        print(start + plain(text), end=end, file=sys.stderr, flush=True)


def print_files(paths: Iterable[Path], *, as_json: bool) -> None:
    """Print the size of each file as soon as it is written; as JSON, of all of them at the end."""
    files = []
    for path in paths:
        files.append({"file": path, "bytes": path.stat().st_size})
        if not as_json:
            print(f"{path}  {path.stat().st_size:,} bytes")
    if as_json:
        print_json(files)


def text_table(columns: Sequence[str], rows: Iterable[Iterable[str]], figures: Collection[str] = ()) -> Table:
    """Return a table with a rule under its head and nothing else to break in a log; columns of `figures` align right. A
    first column of names is not folded; sentences are. Heads and cells may have several lines."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    head, *cells = [[Text("\n".join(map(plain, cell.split("\n")))) for cell in row] for row in (columns, *rows)]
    for position, column in enumerate(columns):
        is_name = position == 0 and all(2 * len(row[0]) < LOG_WIDTH for row in cells)
        justify: Literal["right", "left"] = "right" if column in figures else "left"
        table.add_column(head[position], justify=justify, overflow="fold", no_wrap=is_name)
    for row in cells:
        table.add_row(*row)
    return table


def facts_text(facts: Iterable[tuple[str, str]]) -> str:
    """Return a line for each name and value, with the values aligned."""
    every = tuple(facts)
    width = max([18, *(len(name) + 2 for name, _ in every)])
    return "\n".join(f"{name:<{width}}{plain(value)}" for name, value in every)


def sentences(lines: Iterable[tuple[str, str]]) -> RenderableType:
    """Return the sentences below a table, each after its subject; notes are dim."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(overflow="fold", max_width=24)
    table.add_column(overflow="fold")
    for subject, sentence in lines:
        style = "dim" if subject == "note" else ""
        table.add_row(Text(plain(subject), style=style or "bold"), Text(plain(sentence), style=style))
    return Padding(table, (1, 0, 0, 0))
