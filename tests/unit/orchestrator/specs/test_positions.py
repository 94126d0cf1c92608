"""Positions of fields in a text: of a missing one the nearest place, of an alias the original one; in bounded work."""

import pytest

from orchestrator.specs.positions import SourcePositions
from orchestrator.specs.text import MAX_CHARACTERS, MAX_VALUES, SpecTextError, parse

YAML = """\
name: a
base: &base
  steps: 1
  lists: &lists [[1, 2], [3]]
other:
  <<: *base
  warmup: 2
again: *lists
a/b: {~x: 1}
"""


@pytest.mark.parametrize(
    ("text", "where", "place"),
    [
        (YAML, "", "1:1"),
        (YAML, "/base/lists/1/0", "4:27"),
        (YAML, "/other/warmup", "7:3"),
        (YAML, "/other/steps", "3:3"),
        (YAML, "/other/none", "5:1"),
        (YAML, "/again/0/1", "4:22"),
        (YAML, "/again/7", "8:1"),
        (YAML, "/a~1b/~0x", "9:7"),
        ('{\n\t"a": [1,\n\t{"b": 2}]}', "/a/1/b", "3:3"),
        ('{"a": "' + "x" * 20 + '\\/"}', "/a", "1:2"),
    ],
)
def test_a_field_has_the_place_of_its_name_and_a_missing_one_of_what_would_hold_it(
    text: str, where: str, place: str
) -> None:
    parse(text, "mine")
    assert str(SourcePositions(text).position(where)) == place


def levels(count: int, items: int) -> str:
    """A list of items, and lists of three aliases of the one before."""
    lines = [f"a0: &a0 [{', '.join('1' for _ in range(items))}]"]
    return "\n".join([*lines, *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 3)}]" for n in range(1, count))])


def test_aliases_count_as_all_that_they_repeat() -> None:
    """Five levels of three repeat 1,000 items 121 times."""
    with pytest.raises(SpecTextError, match="more than 50,000 values, where an alias"):
        parse(levels(5, 1_000), "mine")
    flat = "a: &a [1, 2]\nb: [" + ", ".join(["*a"] * 1_000) + "]"
    assert parse(flat, "mine")["b"] == [[1, 2]] * 1_000, "many aliases of little are fine"


def test_a_node_that_aliases_repeat_is_visited_once() -> None:
    """The same objects stand for it everywhere."""
    members = SourcePositions(levels(4, 100))._members
    first = members["a0"][1]
    assert all(members["a1"][1][str(n)][1] is first for n in range(3))
    assert members["a3"][1]["0"][1]["2"][1]["1"][1] is first


def test_text_of_the_largest_size_has_a_bound_of_values_too() -> None:
    with pytest.raises(SpecTextError, match=f"more than {MAX_VALUES:,} values"):
        parse("a: [" + "1," * (MAX_CHARACTERS // 2 - 10) + "]", "mine")


def test_what_is_nested_too_deeply_has_the_place_of_the_whole() -> None:
    assert str(SourcePositions("[" * 5_000).position("/a/a")) == "1:1"
