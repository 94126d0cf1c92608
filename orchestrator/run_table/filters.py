"""The language of the filters of runs: `lr<0.01 and optimizer=adapm and model~llama`.

    filter     = conjunction ("or" conjunction)*
    conjunction= term ("and" term)*
    term       = "not" term | "(" filter ")" | field operator value
    operator   = "=" | "!=" | "<" | "<=" | ">" | ">=" | "~" (contains) | "!~"
    field      = a name of `fields.py`; in quotes where it has spaces
    value      = a number, a word, a text in quotes, or null

Letters are compared without their case (a to z). Logic has two values: a comparison with a field that a run lacks is
false, so that its opposite (`!=`, `!~`, `not`) is true. `store/run_table.py` makes SQL of it.
"""

import math
import re
import string
from dataclasses import dataclass
from datetime import UTC, datetime

from orchestrator.run_table.fields import FieldKind, FilterError, RunField, find_field

LONGEST_FILTER = 1_000
DEEPEST_FILTER = 20
OPERATORS = ("=", "!=", "<", "<=", ">", ">=", "~", "!~")
_TOKEN = re.compile(r"""\s*(?:(?P<operator><=|>=|!=|!~|[=<>~])|(?P<bracket>[()])|(?P<word>[^\s()"'<>=!~]+)
    |"(?P<double>(?:[^"\\]|\\.)*)"|'(?P<single>(?:[^'\\]|\\.)*)')""", re.VERBOSE | re.DOTALL)  # fmt: skip
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Condition:
    """A field compared with a value."""

    field: RunField
    operator: str
    text: str | None
    """The text in small letters; None is `null`."""
    number: float | None
    """The value as a number, where it is one and was not quoted."""


@dataclass(frozen=True)
class Negation:
    """The negation of a filter."""

    part: "Filter"


@dataclass(frozen=True)
class Conjunction:
    """All of these."""

    parts: tuple["Filter", ...]


@dataclass(frozen=True)
class Disjunction:
    """Any of these."""

    parts: tuple["Filter", ...]


Filter = Condition | Negation | Conjunction | Disjunction


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    position: int
    """Counted from 1."""


def parse_filter(text: str) -> Filter | None:
    """Return the filter that the text means; None if it is empty. Raises `FilterError` with the position of the
    fault."""
    if len(text) > LONGEST_FILTER:
        raise FilterError(f"the filter has {len(text):,} characters; at most {LONGEST_FILTER:,} are read")
    tokens = _tokens(text)
    return _Parser(tokens, len(text) + 1).whole() if tokens else None


LOWER_ASCII = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
"""A to Z in small letters, as both databases can do it."""


def _tokens(text: str) -> list[_Token]:
    tokens, position = [], 0
    while text[position:].strip():
        matched = _TOKEN.match(text, position)
        start = position + len(text[position:]) - len(text[position:].lstrip())
        if matched is None:
            quoted = text[start] in "\"'"
            reason = "this quote is never closed" if quoted else f"{text[start]!r} is not one of {' '.join(OPERATORS)}"
            raise _fault(start + 1, reason)
        kind = str(matched.lastgroup)
        content = matched[kind]
        if "\x00" in content:
            raise _fault(start + 1, "there is a NUL, which no field of a run holds; remove it")
        if kind in ("double", "single"):
            kind, content = "quoted", re.sub(r"\\(.)", r"\1", content, flags=re.DOTALL)
        tokens.append(_Token(kind, content, start + 1))
        position = matched.end()
    return tokens


def _fault(position: int, reason: str) -> FilterError:
    return FilterError(f"filter, position {position}: {reason}")


class _Parser:
    """Recursive descent over the tokens."""

    def __init__(self, tokens: list[_Token], end: int) -> None:
        self._tokens, self._next, self._end = tokens, 0, end

    def whole(self) -> Filter:
        """Return the filter, and nothing behind it."""
        disjunction = self._disjunction(0)
        if (token := self._peek()) is not None:
            raise _fault(
                token.position, f"expected and, or, or the end, not {token.text[:40]!r}; quote texts with spaces"
            )
        return disjunction

    def _peek(self) -> _Token | None:
        return self._tokens[self._next] if self._next < len(self._tokens) else None

    def _takes(self, *keywords: str) -> str | None:
        """Return the keyword or bracket that comes next, if it is one of these; it is passed over."""
        token = self._peek()
        if token is None or token.kind not in ("word", "bracket") or token.text.lower() not in keywords:
            return None
        self._next += 1
        return token.text.lower()

    def _disjunction(self, depth: int) -> Filter:
        parts = [self._conjunction(depth)]
        while self._takes("or"):
            parts.append(self._conjunction(depth))
        return parts[0] if len(parts) == 1 else Disjunction(tuple(parts))

    def _conjunction(self, depth: int) -> Filter:
        parts = [self._term(depth)]
        while self._takes("and"):
            parts.append(self._term(depth))
        return parts[0] if len(parts) == 1 else Conjunction(tuple(parts))

    def _term(self, depth: int) -> Filter:
        token = self._peek()
        if depth > DEEPEST_FILTER:
            raise _fault(
                token.position if token else self._end, f"nested deeper than {DEEPEST_FILTER}; write it flatter"
            )
        if self._takes("not"):
            return Negation(self._term(depth + 1))
        if token is not None and self._takes("("):
            inner = self._disjunction(depth + 1)
            if not self._takes(")"):
                raise _fault(token.position, "this ( is never closed; add a )")
            return inner
        return self._condition()

    def _condition(self) -> Condition:
        name = self._expect("a field, like lr", ("word", "quoted"))
        if name.kind == "word" and name.text.lower() in ("and", "or"):
            raise _fault(name.position, f"expected a field, like lr, before {name.text}")
        if self._peek() is None or self._tokens[self._next].kind != "operator":
            example = f"candidate~{name.text[:30]}"
            character = self._tokens[self._next].position if self._peek() else self._end
            raise _fault(
                character, f"expected an operator ({' '.join(OPERATORS)}) behind {name.text[:30]!r}, as in {example}"
            )
        operator = self._expect("an operator", ("operator",))
        value = self._expect(f"a value behind {operator.text}", ("word", "quoted"))
        if value.kind == "word" and value.text.lower() in ("and", "or", "not"):
            raise _fault(value.position, f'expected a value; write "{value.text}" in quotes where the word is meant')
        try:
            field = find_field(name.text)
        except FilterError as error:
            raise _fault(name.position, str(error)) from None
        return _checked_condition(field, operator, value)

    def _expect(self, expectation: str, kinds: tuple[str, ...]) -> _Token:
        token = self._peek()
        if token is None or token.kind not in kinds:
            actual = "the end" if token is None else repr(token.text[:40])
            raise _fault(self._end if token is None else token.position, f"expected {expectation}, not {actual}")
        self._next += 1
        return token


def _checked_condition(field: RunField, operator: _Token, value: _Token) -> Condition:
    is_number = value.kind == "word" and _NUMBER.fullmatch(value.text) is not None
    number = float(value.text) if is_number else None
    if number is not None and not math.isfinite(number):
        raise _fault(value.position, f"{value.text[:40]} is too large for a number")
    if value.kind == "word" and value.text.lower() == "null":
        if operator.text not in ("=", "!="):
            raise _fault(operator.position, f"nothing is {operator.text} null; use = null or != null")
        return Condition(field=field, operator=operator.text, text=None, number=None)
    if field.kind is FieldKind.TIME and number is None:
        number = _moment(field, value)
    if field.kind in (FieldKind.NUMBER, FieldKind.TIME):
        if operator.text in ("~", "!~"):
            raise _fault(operator.position, f"{field.name} is a number and contains no text; use = or <")
        if number is None:
            raise _fault(value.position, f"{field.name} is a number; compare it with one, not with {value.text[:40]!r}")
    if operator.text in ("<", "<=", ">", ">="):
        if field.kind is FieldKind.TEXT:
            raise _fault(operator.position, f"{field.name} is text and has no order here; use = or ~")
        if number is None:
            raise _fault(value.position, f"{operator.text} compares numbers, and {value.text[:40]!r} is none")
    return Condition(field=field, operator=operator.text, text=value.text.translate(LOWER_ASCII), number=number)


def _moment(field: RunField, value: _Token) -> float:
    try:
        moment = datetime.fromisoformat(value.text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise _fault(value.position, f"{field.name} is a time; write it like 2026-11-23 or 2026-11-23T18:30") from None
