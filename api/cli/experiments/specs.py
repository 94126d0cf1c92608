"""Specifications from files: YAML, JSON or TOML, as `orchestrator/specs/text.py` reads them; faults with their
lines."""

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Never

import typer

from api.cli.console import refuse
from orchestrator.specs.faults import Fault
from orchestrator.specs.positions import Places
from orchestrator.specs.text import MAX_CHARACTERS, SpecTextError, TextForm, parse

STDIN = "-"
SpecFile = Annotated[
    Path,
    typer.Argument(help="YAML, JSON or TOML; -: YAML or JSON from standard input.", metavar="FILE", allow_dash=True),
]


@dataclass(frozen=True, kw_only=True)
class SpecText:
    """A specification as a file has it."""

    source: str
    text: str
    form: TextForm
    fields: dict[str, Any]
    """What the text says."""

    def refuse(self, headline: str, faults: Iterable[Fault]) -> Never:
        """Name every fault with its line, `comparison.yaml:12:5: /seeds: …`, and end the command."""
        places, lines = Places(self.text, self.form), [headline]
        for fault in faults:
            place = f"{self.source}:{places.of(fault.pointer)}: " if fault.source == "body" else ""
            lines.append(f"  {place}{fault.text()}")
        refuse("\n".join(lines))


def read_spec(path: Path) -> SpecText:
    """The specification in a file (`-`: standard input); ends the command where there is none."""
    source, form = ("<stdin>" if str(path) == STDIN else str(path)), TextForm.of(path)
    try:
        text = _read(path)
        return SpecText(source=source, text=text, form=form, fields=parse(text, source, form))
    except OSError as error:
        hint = "; `adapm-bench init` writes one to begin with" if isinstance(error, FileNotFoundError) else ""
        refuse(f"cannot read {path}: {error.strerror}{hint}")
    except UnicodeDecodeError as error:
        refuse(f"{path} is neither YAML nor JSON nor TOML: {error}")
    except SpecTextError as error:
        refuse(str(error))


def _read(path: Path) -> str:
    if str(path) == STDIN:
        return sys.stdin.read(MAX_CHARACTERS + 1)
    with path.open(encoding="utf-8-sig") as file:  # editors of other systems begin files with a mark
        return file.read(MAX_CHARACTERS + 1)
