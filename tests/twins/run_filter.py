"""The twin of the filters of runs: what a filter says of one run, value by value, in Python."""

from collections.abc import Callable, Mapping

from orchestrator.run_table.filters import Condition, Conjunction, Disjunction, Filter, Negation

Values = Mapping[str, str | float | None]
ORDER: dict[str, Callable[[float, float], bool]] = {
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "=": lambda a, b: a == b,
}


def fits(run: Values, asked: Filter) -> bool:
    """Whether the filter finds a run of these values."""
    if isinstance(asked, Negation):
        return not fits(run, asked.part)
    if isinstance(asked, Conjunction):
        return all(fits(run, part) for part in asked.parts)
    if isinstance(asked, Disjunction):
        return any(fits(run, part) for part in asked.parts)
    if asked.operator.startswith("!"):
        same = Condition(field=asked.field, operator=asked.operator[1:], text=asked.text, number=asked.number)
        return not fits(run, same)
    value = run.get(asked.field.name)
    if isinstance(value, float) and value != value:
        value = None
    if asked.text is None or value is None:
        return asked.text is None and value is None
    if isinstance(value, str):
        small = "".join(chr(ord(letter) + 32) if "A" <= letter <= "Z" else letter for letter in value)
        return small == asked.text if asked.operator == "=" else asked.operator == "~" and asked.text in small
    return asked.number is not None and asked.operator in ORDER and ORDER[asked.operator](value, asked.number)
