"""Specifications from files: YAML or JSON, as `orchestrator/spec_text.py` reads them."""

import sys
from pathlib import Path
from typing import Any, Never

import typer

from api.cli.console import complain
from api.cli.service import BAD_INPUT
from orchestrator.spec_text import MAX_CHARACTERS, SpecTextError, parse

STDIN = "-"


def read_spec(path: Path) -> dict[str, Any]:
    """The mapping in a YAML or JSON file (`-`: standard input); ends the command where there is none."""
    try:
        return parse(_read(path), str(path))
    except OSError as error:
        refuse(f"cannot read {path}: {error.strerror}")
    except UnicodeDecodeError as error:
        refuse(f"{path} is neither YAML nor JSON: {error}")
    except SpecTextError as error:
        refuse(str(error))


def _read(path: Path) -> str:
    if str(path) == STDIN:
        return sys.stdin.read(MAX_CHARACTERS + 1)
    with path.open(encoding="utf-8") as file:
        return file.read(MAX_CHARACTERS + 1)


def refuse(message: str) -> Never:
    """Say what is wrong with the input and leave with the exit code for it."""
    complain(message)
    raise typer.Exit(BAD_INPUT)
