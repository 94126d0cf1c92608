"""Specifications from files: YAML or JSON, read safely, with numbers as people write them."""

import re
import sys
from pathlib import Path
from typing import Any, Never

import typer
import yaml

from api.cli.console import complain
from api.cli.service import BAD_INPUT

STDIN = "-"
MAX_CHARACTERS = 1_000_000
"""The service takes no body over 1 MiB; parsing a longer file would only cost minutes."""

MAX_ALIASES = 16
"""Enough for shared parts of a specification, too few to multiply by much."""
FLOAT = re.compile(r"^[-+]?(?:\d[\d_]*)(?:\.[\d_]*)?[eE][-+]?\d+$")
"""`2e-3` is a number: YAML 1.2 says so, PyYAML's YAML 1.1 takes it for text."""


class SpecLoader(yaml.SafeLoader):
    """YAML's plain data, no objects, few aliases; scientific notation is a number; a key stands only once."""

    aliases = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """A node; raises `ComposerError` for too many aliases: nine lines of them can stand for a billion values."""
        if self.check_event(yaml.AliasEvent):
            self.aliases += 1
        if self.aliases > MAX_ALIASES:
            problem = f"more than {MAX_ALIASES} aliases (*name)"
            raise yaml.composer.ComposerError(None, None, problem, self.get_mark())
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """A mapping; raises `ConstructorError` where a key is given twice, which would hide the first value."""
        seen: set[str] = set()
        for key, _ in node.value:
            if key.value in seen:
                problem = f"{key.value!r} is given twice"
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
            seen.add(str(key.value))
        return super().construct_mapping(node, deep=deep)


SpecLoader.add_implicit_resolver("tag:yaml.org,2002:float", FLOAT, list("-+0123456789"))


def read_spec(path: Path) -> dict[str, Any]:
    """The mapping in a YAML or JSON file (`-`: standard input); ends the command where there is none."""
    try:
        text = _read(path)
        if len(text) > MAX_CHARACTERS:
            refuse(f"{path} is longer than {MAX_CHARACTERS:,} characters; no specification is")
        value = yaml.load(text, Loader=SpecLoader)  # noqa: S506 - a SafeLoader
    except OSError as error:
        refuse(f"cannot read {path}: {error.strerror}")
    except (yaml.YAMLError, ValueError) as error:  # text that is not UTF-8, numbers of thousands of digits
        refuse(f"{path} is neither YAML nor JSON: {error}")
    except RecursionError:
        refuse(f"{path} is nested too deeply for a specification")
    if not isinstance(value, dict):
        refuse(f"{path} holds {_noun(value)}, not the fields of a specification; docs/specs.md lists them")
    return value


def _read(path: Path) -> str:
    if str(path) == STDIN:
        return sys.stdin.read(MAX_CHARACTERS + 1)
    with path.open(encoding="utf-8") as file:
        return file.read(MAX_CHARACTERS + 1)


def refuse(message: str) -> Never:
    """Say what is wrong with the input and leave with the exit code for it."""
    complain(message)
    raise typer.Exit(BAD_INPUT)


def _noun(value: object) -> str:
    return "nothing" if value is None else f"a {type(value).__name__}"
