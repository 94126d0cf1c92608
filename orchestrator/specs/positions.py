"""Where the fields of a specification stand in its text: the JSON pointer of a fault becomes a line and a column.

YAML and JSON: PyYAML's nodes bear marks. TOML: the standard library's parser tells no places, so statements are cut out
with its own help: one ends with the first line up to which the parser understands it.
"""

import tomllib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import yaml

from orchestrator.specs.faults import pointer
from orchestrator.specs.text import SpecLoader, TextForm

SpecPath = tuple[int | str, ...]

_MERGE = "tag:yaml.org,2002:merge"

MAX_DEPTH = 50
"""No specification is nested deeper; what an alias nests into itself has no end."""
MAX_STATEMENT_LINES = 2_000
"""A TOML value of more lines is not followed: every line more is one more try."""


class SourcePosition(NamedTuple):
    """A place in a text, counted from 1."""

    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.line}:{self.column}"


class Places:
    """The places of all fields of one text that was understood."""

    def __init__(self, text: str, form: TextForm) -> None:
        self._places: dict[str, SourcePosition] = {}
        for path, place in _field_places(text, form):
            self._places.setdefault(pointer(path), place)

    def position(self, where: str) -> SourcePosition:
        """The place of that pointer; of what would hold it, where it is missing or a default."""
        while where and where not in self._places:
            where = where.rpartition("/")[0]
        return self._places.get(where, SourcePosition(1, 1))


def _field_places(text: str, form: TextForm) -> Iterator[tuple[SpecPath, SourcePosition]]:
    if form is TextForm.TOML:
        yield from _toml_places(text)
        return
    # JSON may be indented by tabs, YAML may not; within JSON's strings there are none.
    loader = SpecLoader(text.replace("\t", " ") if form is TextForm.JSON else text)
    try:
        root = loader.get_single_node()
    except (
        yaml.YAMLError,
        RecursionError,
    ):  # JSON that YAML does not take: faults are told at its first line
        return
    finally:
        loader.dispose()
    if root is not None:
        yield (), _place(root)
        yield from _node_places(root, ())


def _node_places(node: yaml.Node, path: SpecPath) -> Iterator[tuple[SpecPath, SourcePosition]]:
    """The places below a node: of a member its key's, of an item its own."""
    if len(path) >= MAX_DEPTH:
        return
    if isinstance(node, yaml.SequenceNode):
        for position, item in enumerate(node.value):
            yield (*path, position), _place(item)
            yield from _node_places(item, (*path, position))
    elif isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.tag != _MERGE:
                yield (*path, str(key.value)), _place(key)
                yield from _node_places(value, (*path, str(key.value)))
        for key, value in node.value:  # after its own members, which win
            if key.tag == _MERGE:
                for merged in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                    yield from _node_places(merged, path)


def _place(node: yaml.Node) -> SourcePosition:
    return SourcePosition(node.start_mark.line + 1, node.start_mark.column + 1)


def _toml_places(text: str) -> Iterator[tuple[SpecPath, SourcePosition]]:
    table: SpecPath = ()
    arrays: dict[SpecPath, int] = {}
    for place, statement in _statements(text):
        fields = tomllib.loads(statement)
        if statement.startswith("["):
            table = _table(fields, arrays, array=statement.startswith("[["))
            yield from ((table[:length], place) for length in range(1, len(table) + 1))
        else:
            yield from ((table + path, place) for path in _paths(fields))


def _statements(text: str) -> Iterator[tuple[SourcePosition, str]]:
    """Every statement of a TOML document with its place; comments and empty lines are none."""
    lines = text.split("\n")
    first = 0
    while first < len(lines):
        begun = lines[first].strip()
        last = first
        if begun and not begun.startswith("#"):
            while not _whole(begun) and last + 1 < len(lines) and last - first < MAX_STATEMENT_LINES:
                last += 1
                begun += "\n" + lines[last]
            if not _whole(begun):
                return
            yield SourcePosition(first + 1, len(lines[first]) - len(lines[first].lstrip()) + 1), begun
        first = last + 1


def _whole(statement: str) -> bool:
    try:
        tomllib.loads(statement)
    except tomllib.TOMLDecodeError:
        return False
    return True


def _table(fields: Mapping[str, Any], arrays: dict[SpecPath, int], *, array: bool) -> SpecPath:
    """The path of a header's table; names of arrays of tables on the way stand for their newest item."""
    names: list[str] = []
    here: Any = fields
    while isinstance(here, dict) and here:
        name, here = next(iter(here.items()))
        names.append(name)
    path: SpecPath = ()
    for name in names[:-1]:
        path = _newest((*path, name), arrays)
    path = (*path, names[-1])
    if array:
        arrays[path] = arrays.get(path, -1) + 1
    return _newest(path, arrays)


def _newest(path: SpecPath, arrays: Mapping[SpecPath, int]) -> SpecPath:
    return (*path, arrays[path]) if path in arrays else path


def _paths(value: Any) -> Iterator[SpecPath]:
    """The paths of all that a value holds."""
    if isinstance(value, dict | list):
        for step, held in value.items() if isinstance(value, dict) else enumerate(value):
            yield (step,)
            yield from ((step, *path) for path in _paths(held))
