"""Positions of a specification's fields in its text: the JSON pointer of a fault becomes a line and a column.

PyYAML's nodes bear marks.
"""

from contextlib import suppress
from typing import NamedTuple

import yaml

from orchestrator.specs.faults import pointer
from orchestrator.specs.text import SpecLoader

_MERGE = "tag:yaml.org,2002:merge"


class SourcePosition(NamedTuple):
    """A place in a text, counted from 1."""

    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.line}:{self.column}"


Members = dict[str, tuple[SourcePosition, "Members"]]
"""The fields of an object, or the items of a list: step of a JSON pointer → its place, and what is below it."""


class SourcePositions:
    """The places of all fields of one text that was understood. What an alias repeats stands in one place."""

    def __init__(self, text: str) -> None:
        self._root, self._members = SourcePosition(1, 1), Members()
        # JSON that YAML does not take, and what is nested too deeply: faults are told at its first line.
        with suppress(yaml.YAMLError, RecursionError):
            # JSON may be indented by tabs, YAML may not.
            if (root := yaml.compose(text.replace("\t", " "), Loader=SpecLoader)) is not None:
                self._root, self._members = _start_of(root), _members_of(root, {})

    def position(self, where: str) -> SourcePosition:
        """Return the position of that JSON pointer; if it is missing or a default, that of its nearest ancestor."""
        location, members = self._root, self._members
        for step in where.split("/")[1:]:
            if step not in members:
                break
            location, members = members[step]
        return location


def _members_of(node: yaml.Node, members_by_node: dict[yaml.Node, Members]) -> Members:
    """Return the places below a node: of a member its key's, of an item its own."""
    if node in members_by_node:
        return members_by_node[node]
    members = members_by_node[node] = Members()
    if isinstance(node, yaml.SequenceNode):
        for position, item in enumerate(node.value):
            members[str(position)] = _start_of(item), _members_of(item, members_by_node)
    elif isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.tag != _MERGE:
                members[pointer((key.value,))[1:]] = _start_of(key), _members_of(value, members_by_node)
        for key, value in node.value:  # after its own members, which win
            if key.tag == _MERGE:
                for merged in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                    for step, member in _members_of(merged, members_by_node).items():
                        members.setdefault(step, member)
    return members


def _start_of(node: yaml.Node) -> SourcePosition:
    return SourcePosition(node.start_mark.line + 1, node.start_mark.column + 1)
