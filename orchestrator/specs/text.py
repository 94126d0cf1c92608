"""Specifications as text: YAML or JSON, read safely, with numbers as people write them; written as YAML again."""

import json
import re
import unicodedata
from contextlib import suppress
from importlib.resources import files
from typing import Any, Never

import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from orchestrator.errors import OrchestratorError
from orchestrator.kinds.registry import ExperimentSpec
from orchestrator.specs.faults import LONGEST_TEXT
from worker.schema import trust_stored_names
from worker.spec.run import Workload

MAX_CHARACTERS = 1_000_000
"""The service takes no body over 1 MiB; parsing a longer text would only cost minutes."""

MAX_VALUES = 50_000
"""Twice as many as the largest search has, and PyYAML reads them within a second or two."""
NUMBERS = {
    "int": re.compile(r"^[-+]?(?:0|[1-9][\d_]*|0x[\da-fA-F_]+)$"),
    "float": re.compile(
        r"^[-+]?(?:(?:\d[\d_]*\.[\d_]*|\.\d+)(?:[eE][-+]?\d+)?|\d[\d_]*[eE][-+]?\d+|\.(?:inf|Inf|INF))$|^\.nan$"
    ),
}
"""`2e-3` is a number, `010` and `1:30` are none: so says YAML 1.2. PyYAML's YAML 1.1 reads them as text, 8 and 90."""
CONTROL_CHARACTER = yaml.reader.Reader.NON_PRINTABLE
"""Finds what YAML allows nowhere: control characters but tabs and line ends, and what stands for no character."""


class SpecTextError(OrchestratorError):
    """The text is not a specification: what was found instead, and where."""


class TwiceError(ValueError):
    """A name stands twice in one object."""


class SpecLoader(yaml.SafeLoader):
    """YAML's plain data, no objects; an alias counts as all that it repeats; scientific notation is a number; a key
    stands only once."""

    values = 0

    def __init__(self, stream: str) -> None:
        """Read a text."""
        super().__init__(stream)
        self._values_below: dict[str, int] = {}
        """Anchor → how many values an alias of it repeats."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Return a node; raises `ComposerError` for too many values, and for an alias within what it repeats."""
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]  # its stub has no type
        is_alias, old_count = isinstance(event, yaml.AliasEvent), self.values
        node = super().compose_node(parent, index)
        if not is_alias:
            self.values += 1
            if event.anchor is not None:
                self._values_below[event.anchor] = self.values - old_count
        elif event.anchor in self._values_below:
            self.values += self._values_below[event.anchor]
        else:
            problem = f"an alias (*{event.anchor}) stands for what holds itself"
            raise yaml.composer.ComposerError(None, None, problem, event.start_mark)
        if self.values > MAX_VALUES:
            problem = f"more than {MAX_VALUES:,} values, where an alias (*name) counts as all that it repeats"
            raise yaml.composer.ComposerError(None, None, problem, event.start_mark)
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """Return a value; raises `ConstructorError` with its place where it is none of its kind: `!!int ''`,
        2026-13-45, a number with more digits than Python writes."""
        try:
            value = super().construct_object(node, deep)
            if isinstance(value, int):
                str(value)  # hexadecimal digits are read without end, and then written nowhere
        except (ArithmeticError, AttributeError, LookupError, ValueError) as error:
            kind = node.tag.rpartition(":")[2]
            problem = f"{str(node.value)[:LONGEST_TEXT]!r} cannot be read as {kind}; quote it if it is text"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark) from error
        return value

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Return a mapping; raises `ConstructorError` if a key is given twice, which would hide the first value."""
        keys: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                problem = "the name of a field must be text"
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
            if key.value in keys:
                problem = f"{key.value!r} is given twice"
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
            keys.add(str(key.value))
        mapping = super().construct_mapping(node, deep=deep)
        for name in mapping:
            if not isinstance(name, str | int | float | None):
                problem = f"the name of a field must be text, not {name!r}"
                raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
        return mapping


SpecLoader.yaml_implicit_resolvers = {
    first: [(tag, regexp) for tag, regexp in resolvers if tag.rpartition(":")[2] not in NUMBERS]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
for _kind, _regexp in NUMBERS.items():
    SpecLoader.add_implicit_resolver(f"tag:yaml.org,2002:{_kind}", _regexp, list("-+.0123456789"))


def parse(text: str, source: str) -> dict[str, Any]:
    """Return the mapping in a text that came from `source`; raises `SpecTextError` if there is none."""
    if len(text) > MAX_CHARACTERS:
        raise SpecTextError(f"{source} is longer than {MAX_CHARACTERS:,} characters; no specification is")
    if match := CONTROL_CHARACTER.search(text):
        raise SpecTextError(_character_trouble(source, text, match.start()))
    try:
        value = _value(text)
    except yaml.MarkedYAMLError as error:
        raise SpecTextError(_yaml_trouble(source, error)) from error
    except (yaml.YAMLError, ValueError) as error:  # text that is not UTF-8, numbers of thousands of digits
        raise SpecTextError(f"{source} is neither YAML nor JSON: {error}") from error
    except RecursionError as error:
        raise SpecTextError(f"{source} is nested too deeply for a specification") from error
    if not isinstance(value, dict):
        raise SpecTextError(
            f"{source} holds {_noun(value)}, not the fields of a specification; "
            "docs/reference/specifications.md lists them"
        )
    return value


def _value(text: str) -> Any:
    if text.lstrip().startswith("{"):
        # JSON may be indented by tabs, and writes emoji as two characters. If it is none, YAML says where.
        with suppress(json.JSONDecodeError):
            return json.loads(text, object_pairs_hook=distinct_keys, parse_constant=_no_number)
    return yaml.load(text, Loader=SpecLoader)  # noqa: S506 - a SafeLoader


def distinct_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object of these members, as `json.loads` takes it for its `object_pairs_hook`.

    Raises `TwiceError` for a name that stands twice, which would hide its first value.
    """
    members: dict[str, Any] = {}
    for name, value in pairs:
        if name in members:
            raise TwiceError(f"{name!r} is given twice")
        members[name] = value
    return members


def _no_number(word: str) -> Never:
    raise ValueError(f"{word} is not JSON's")


def _yaml_trouble(source: str, error: yaml.MarkedYAMLError) -> str:
    """Return `a.yaml:3:7: neither YAML nor JSON: while parsing a flow sequence: expected ',' or ']', …`."""
    mark = error.problem_mark or error.context_mark
    prefix = f"{source}:{mark.line + 1}:{mark.column + 1}:" if mark else f"{source} is"
    message = ": ".join(filter(None, (error.context, error.problem)))
    if r"'\t'" in message:
        message += "; indent with spaces, not with tabs"
    return f"{prefix} neither YAML nor JSON: {message}"


def _character_trouble(source: str, text: str, position: int) -> str:
    """Return `a.yaml:3:7: U+0007 is a control character, …`; the parsers name no line, or not the character."""
    line, column = text.count("\n", 0, position) + 1, position - text.rfind("\n", 0, position)
    kind = "a control character" if unicodedata.category(text[position]) == "Cc" else "no character of any script"
    alternative = ", or save the file as UTF-8 where it is UTF-16" if text[position] == "\0" else ""
    return f"{source}:{line}:{column}: U+{ord(text[position]):04X} is {kind}; take it out{alternative}"


def to_yaml(fields: dict[str, Any]) -> str:
    """Return the fields as YAML that `parse` reads back to the same."""
    text: str = yaml.dump(fields, Dumper=_Plain, sort_keys=False, allow_unicode=True, width=100)
    return text


class _Plain(yaml.SafeDumper):
    """YAML as people write it: no aliases, short lists of numbers on one line."""

    def ignore_aliases(self, data: Any) -> bool:
        """Return true: a value that stands twice is written twice."""
        return True


def _list(dumper: yaml.SafeDumper, value: list[Any]) -> yaml.SequenceNode:
    scalars = all(not isinstance(item, dict | list) for item in value)
    return dumper.represent_sequence("tag:yaml.org,2002:seq", value, flow_style=scalars)


_Plain.add_representer(list, _list)


def _noun(value: object) -> str:
    if value is None or isinstance(value, bool):
        return "nothing" if value is None else "true or false"
    return {str: "plain text", list: "a list", int: "a number", float: "a number"}.get(type(value), "a date")


# A specification as its author would write it: without what holds anyway, and with every word that tells kinds apart.
#
#     spec ─► `brief` ─► fields ─► `kinds.spec_of` ─► an equal spec
#
# "What holds anyway" is what the specification would have without the field, which for a workload depends on its
# task. A `kind` always stays: an experiment, a task or a range without it would be another one. Pure.

KIND = "kind"


def brief(spec: ExperimentSpec) -> dict[str, Any]:
    """Return the fields of a specification, as short as they can be."""
    fields = _fields(spec, None)
    for path in spec.derived_fields:
        _leave_out(path, fields)
    return fields


def _leave_out(path: tuple[str, ...], fields: dict[str, Any]) -> None:
    """Take a field out, and what then holds nothing; the part of the specification that it is in stays."""
    way = []
    for name in path[:-1]:
        fields = fields[name]
        way.append(fields)
    for holder, name in zip(reversed(way), reversed(path), strict=False):
        del holder[name]
        if holder:
            return


def _fields(model: BaseModel, usual: BaseModel | None) -> dict[str, Any]:
    """Return the fields of `model` that differ from `usual`, which replaces the defaults of its class."""
    if isinstance(model, Workload):
        usual = _usual(model)
    written = model.model_dump(mode="json")
    fields: dict[str, Any] = {}
    for name, field in type(model).model_fields.items():
        if name not in written:
            continue
        value = getattr(model, name)
        default = _default(field) if usual is None else getattr(usual, name)
        if name == KIND or field.is_required() or value != default:
            of_same_class = isinstance(default, BaseModel) and type(default) is type(value)
            fields[name] = _plain(value, written[name], default if of_same_class else None)
    return fields


def _plain(value: Any, written: Any, usual: BaseModel | None) -> Any:
    """Return a value as plain JSON; specifications inside it are shortened as well."""
    if isinstance(value, BaseModel):
        return _fields(value, usual)
    if isinstance(value, tuple):
        return [_plain(member, as_json, None) for member, as_json in zip(value, written, strict=True)]
    if isinstance(value, dict):
        return {name: _plain(member, written[name], None) for name, member in value.items()}
    return written


def _usual(workload: Workload) -> Workload:
    """Return the workload that task, model and steps alone would make; the task itself is held to the usual one."""
    task = workload.task.model_dump(mode="json")
    fields = {"task": task, "model": workload.model, "budget": {"steps": workload.budget.steps}}
    with trust_stored_names():
        usual_workload = Workload.model_validate(fields)
    return usual_workload.model_copy(update={"task": _default(Workload.model_fields["task"])})


def _default(field: FieldInfo) -> Any:
    return field.get_default(call_default_factory=True, validated_data={})


def example(kind: str) -> str:
    """Return the commented specification of a kind of experiment, or of a run."""
    return (files("orchestrator.specs") / "examples" / f"{kind}.yaml").read_text(encoding="utf-8")
