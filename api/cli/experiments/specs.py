"""Specifications as files: YAML or JSON, as `orchestrator/specs/text.py` reads them; faults with their lines.

`adapm-bench init` writes a commented one, the same as the documentation's, and with `--schema` the JSON schema of
specifications, which makes editors complete and check them.
"""

import json as json_text
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Never

import typer

from api.cli.console import Json, print_json, refuse
from api.cli.settings import environment_settings
from orchestrator.specs.faults import Fault
from orchestrator.specs.positions import SourcePositions
from orchestrator.specs.schema import SPECS
from orchestrator.specs.schema import schema as schema_of
from orchestrator.specs.text import MAX_CHARACTERS, SpecTextError, example, parse

STDIN = "-"
MOST_BYTES = 4 * MAX_CHARACTERS + 4
"""The most bytes of a text, one character more included."""
SpecFile = Annotated[
    Path,
    typer.Argument(help="YAML or JSON; -: from standard input.", metavar="FILE", allow_dash=True),
]


@dataclass(frozen=True, kw_only=True)
class SpecText:
    """A specification as a file has it."""

    source: str
    text: str
    fields: dict[str, Any]
    """The fields of the text."""

    def refuse(self, headline: str, faults: Iterable[Fault]) -> Never:
        """Name every fault with its line, `comparison.yaml:12:5: /seeds: …`, and end the command."""
        positions, lines = SourcePositions(self.text), [headline]
        for fault in faults:
            prefix = f"{self.source}:{positions.position(fault.pointer)}: " if fault.source == "body" else ""
            lines.append(f"  {prefix}{fault.text()}")
        refuse("\n".join(lines))


def read_spec(path: Path) -> SpecText:
    """Return the specification in a file (`-`: standard input); ends the command where there is none."""
    source = "<stdin>" if str(path) == STDIN else str(path)
    try:
        with sys.stdin.buffer if str(path) == STDIN else path.open("rb") as file:
            content = file.read(MOST_BYTES)
        text = content.decode("utf-8-sig")  # editors of other systems begin files with a mark
        return SpecText(source=source, text=text, fields=parse(text, source))
    except OSError as error:
        hint = "; `adapm-bench init` writes one to begin with" if isinstance(error, FileNotFoundError) else ""
        refuse(f"cannot read {path}: {error.strerror}{hint}")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        refuse(f"{source}, line {line}, is not UTF-8 (byte 0x{error.object[error.start]:02x}); save it as UTF-8")
    except SpecTextError as error:
        refuse(str(error))


def _require_kind(name: str) -> str:
    if name not in SPECS:
        raise typer.BadParameter(f"{name!r} is not one of {', '.join(map(repr, SPECS))}.")
    return name


Kind = Annotated[
    str,
    typer.Argument(
        help=f"Kind of the specification: {', '.join(SPECS)}.",
        metavar="KIND",
        callback=_require_kind,
        autocompletion=lambda: list(SPECS),
    ),
]
Out = Annotated[
    Path | None,
    typer.Option("--out", "-o", help="The file to write, - for standard output; default: KIND.yaml.", metavar="FILE"),
]
Schema = Annotated[
    bool, typer.Option("--schema", help="Write the JSON schema instead; editors complete and check with it.")
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")]

STDOUT = "-"


def init(
    kind: Kind = "comparison", schema: Schema = False, out: Out = None, force: Force = False, json: Json = False
) -> None:
    """Write a commented specification to begin with, or the JSON schema of specifications. Needs no service."""
    if schema:
        environment_settings()  # checks own optimizers: the schema names them, too
        text = json_text.dumps(schema_of(kind), indent=2, ensure_ascii=False) + "\n"
    else:
        text = example(kind)
    path = out or Path(f"{kind}.schema.json" if schema else f"{kind}.yaml")
    if str(path) == STDOUT:
        if json:
            refuse("standard output cannot hold both the file and --json; leave out --json or --out -")
        print(text, end="")
        return
    if not schema and path.suffix.lower() == ".json":
        refuse(f"cannot write {path}: the comments are YAML's; name the file {path.with_suffix('.yaml')}")
    try:
        with path.open("w" if force else "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        refuse(f"{path} already exists; --force overwrites it, --out FILE writes another file")
    except OSError as error:
        refuse(f"cannot write {path}: {error.strerror}; choose another file with --out")
    if json:
        print_json({"kind": kind, "file": path})
        return
    print(f"wrote {path}")
    if not schema:
        print(f"next: adapm-bench {'run' if kind == 'run' else 'validate'} {path}")
