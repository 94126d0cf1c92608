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


def fits(run: Values, query: Filter) -> bool:
    """Whether the filter finds a run of these values."""
    if isinstance(query, Negation):
        return not fits(run, query.part)
    if isinstance(query, Conjunction):
        return all(fits(run, part) for part in query.parts)
    if isinstance(query, Disjunction):
        return any(fits(run, part) for part in query.parts)
    if query.operator.startswith("!"):
        opposite = Condition(field=query.field, operator=query.operator[1:], text=query.text, number=query.number)
        return not fits(run, opposite)
    value = run.get(query.field.name)
    if isinstance(value, float) and value != value:
        value = None
    if query.text is None or value is None:
        return query.text is None and value is None
    if isinstance(value, str):
        small = "".join(chr(ord(letter) + 32) if "A" <= letter <= "Z" else letter for letter in value)
        return small == query.text if query.operator == "=" else query.operator == "~" and query.text in small
    return query.number is not None and query.operator in ORDER and ORDER[query.operator](value, query.number)
