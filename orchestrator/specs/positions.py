"""Where the fields of a specification stand in its text: the JSON pointer of a fault becomes a line and a column.

YAML and JSON: PyYAML's nodes bear marks. TOML: the standard library's parser tells no places, so statements are cut out
with its own help: one ends with the first line up to which the parser understands it.
"""

import tomllib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import yaml

from orchestrator.specs.faults import pointer
from orchestrator.specs.text import SpecLoader, TextForm

SpecPath = tuple[int | str, ...]

_MERGE = "tag:yaml.org,2002:merge"

MAX_TRIED_CHARACTERS = 2_000_000
"""Characters that tomllib reads, over and over, in search of the ends of a text's statements: about two seconds."""


class SourcePosition(NamedTuple):
    """A place in a text, counted from 1."""

    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.line}:{self.column}"


Members = dict[str, tuple[SourcePosition, "Members"]]
"""The fields of an object, or the items of a list: step of a JSON pointer → its place, and what is below it."""


class Places:
    """The places of all fields of one text that was understood. What an alias repeats stands in one place."""

    def __init__(self, text: str, form: TextForm) -> None:
        self._root, self._members = SourcePosition(1, 1), Members()
        # JSON that YAML does not take, and what is nested too deeply: faults are told at its first line.
        with suppress(yaml.YAMLError, RecursionError):
            if form is TextForm.TOML:
                _add_toml(text, self._members)
            elif (root := _root_node(text, form)) is not None:
                self._root, self._members = _place(root), _members_of(root, {})

    def position(self, where: str) -> SourcePosition:
        """The place of that pointer; of what would hold it, where it is missing or a default."""
        place, members = self._root, self._members
        for step in where.split("/")[1:]:
            if step not in members:
                break
            place, members = members[step]
        return place


def _root_node(text: str, form: TextForm) -> yaml.Node | None:
    # JSON may be indented by tabs, YAML may not; within JSON's strings there are none.
    loader = SpecLoader(text.replace("\t", " ") if form is TextForm.JSON else text)
    try:
        return loader.get_single_node()
    finally:
        loader.dispose()


def _members_of(node: yaml.Node, known: dict[yaml.Node, Members]) -> Members:
    """What is below a node: of a member its key's place, of an item its own."""
    if node in known:
        return known[node]
    found = known[node] = Members()
    if isinstance(node, yaml.SequenceNode):
        for position, item in enumerate(node.value):
            found[str(position)] = _place(item), _members_of(item, known)
    elif isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.tag != _MERGE:
                found[_step(key.value)] = _place(key), _members_of(value, known)
        for key, value in node.value:  # after its own members, which win
            if key.tag == _MERGE:
                for merged in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                    for step, member in _members_of(merged, known).items():
                        found.setdefault(step, member)
    return found


def _step(name: int | str) -> str:
    """A field's name, or an item's number, as it stands in a JSON pointer."""
    return pointer((name,))[1:]


def _place(node: yaml.Node) -> SourcePosition:
    return SourcePosition(node.start_mark.line + 1, node.start_mark.column + 1)


def _add_toml(text: str, root: Members) -> None:
    """Fill `root` statement by statement."""
    table: SpecPath = ()
    arrays: dict[SpecPath, int] = {}
    for place, statement in _statements(text):
        fields = tomllib.loads(statement)
        if is_header := statement.startswith("["):
            table = _table(fields, arrays, array=statement.startswith("[["))
        members = root
        for step in table:
            _, members = members.setdefault(_step(step), (place, Members()))
        if not is_header:
            _add_fields(fields, place, members)


def _add_fields(value: Any, place: SourcePosition, members: Members) -> None:
    """Fill `members` with all that a value holds, at one place."""
    if isinstance(value, dict | list):
        for step, held in value.items() if isinstance(value, dict) else enumerate(value):
            _, below = members.setdefault(_step(step), (place, Members()))
            _add_fields(held, place, below)


def _statements(text: str) -> Iterator[tuple[SourcePosition, str]]:
    """Every statement of a TOML document with its place; comments and empty lines are none."""
    lines = text.split("\n")
    first = tried = 0
    while first < len(lines):
        begun = lines[first].strip()
        last = first
        if begun and not begun.startswith("#"):
            while not _whole(begun):
                last += 1
                tried += len(begun)
                if last == len(lines) or tried > MAX_TRIED_CHARACTERS:
                    return
                begun += "\n" + lines[last]
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
