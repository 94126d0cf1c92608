"""Specifications as text: YAML or JSON, read safely, with numbers as people write them; and written as YAML again."""

import re
from typing import Any

import yaml

from orchestrator.errors import OrchestratorError

MAX_CHARACTERS = 1_000_000
"""The service takes no body over 1 MiB; parsing a longer text would only cost minutes."""

MAX_ALIASES = 16
"""Enough for shared parts of a specification, too few to multiply by much."""
FLOAT = re.compile(r"^[-+]?(?:\d[\d_]*)(?:\.[\d_]*)?[eE][-+]?\d+$")
"""`2e-3` is a number: YAML 1.2 says so, PyYAML's YAML 1.1 takes it for text."""


class SpecTextError(OrchestratorError):
    """The text is no specification: what was found instead, and where."""


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


def parse(text: str, source: str) -> dict[str, Any]:
    """The mapping in a text that came from `source`; raises `SpecTextError` where there is none."""
    if len(text) > MAX_CHARACTERS:
        raise SpecTextError(f"{source} is longer than {MAX_CHARACTERS:,} characters; no specification is")
    try:
        value = yaml.load(text, Loader=SpecLoader)  # noqa: S506 - a SafeLoader
    except (yaml.YAMLError, ValueError) as error:  # text that is not UTF-8, numbers of thousands of digits
        raise SpecTextError(f"{source} is neither YAML nor JSON: {error}") from error
    except RecursionError as error:
        raise SpecTextError(f"{source} is nested too deeply for a specification") from error
    if not isinstance(value, dict):
        raise SpecTextError(
            f"{source} holds {_noun(value)}, not the fields of a specification; docs/specs.md lists them"
        )
    return value


def written(fields: dict[str, Any]) -> str:
    """The fields as YAML that `parse` reads back to the same."""
    text: str = yaml.dump(fields, Dumper=_Plain, sort_keys=False, allow_unicode=True, width=100)
    return text


class _Plain(yaml.SafeDumper):
    """YAML as people write it: no aliases, short lists of numbers on one line."""

    def ignore_aliases(self, data: Any) -> bool:
        """Always: a value that stands twice is written twice."""
        return True


def _list(dumper: yaml.SafeDumper, value: list[Any]) -> yaml.SequenceNode:
    scalars = all(not isinstance(item, dict | list) for item in value)
    return dumper.represent_sequence("tag:yaml.org,2002:seq", value, flow_style=scalars)


_Plain.add_representer(list, _list)


def _noun(value: object) -> str:
    return "nothing" if value is None else f"a {type(value).__name__}"
