"""Block rules as hyperparameters of a sweep: `rule:PATTERN` is the name of one, what those blocks keep its value. Pure.

    rule:*.q_proj.weight = rank:8   ─►   the run's rule *.q_proj.weight=rank:8        and back again
    rule:*.q_proj.weight = plan     ─►   no rule: what the optimizer's own plan says

What blocks may keep is said in the words of `adapm-bench models --rule`.
"""

from collections.abc import Iterable, Mapping
from typing import TypeGuard

from pydantic import TypeAdapter, ValidationError

from optim.catalog.records import Scalar
from worker.spec.run import RuleText

PREFIX = "rule:"
PLAN = "plan"
"""The value that leaves the blocks to the optimizer's own plan: the default of every such hyperparameter."""
SUGGESTED: tuple[str, ...] = (PLAN, "full", "low-rank", "none")
"""The catalog's range of a rule: the plan's own, and each kind of first moment."""

_RULE: TypeAdapter[str] = TypeAdapter(RuleText)


def is_rule(name: object) -> TypeGuard[str]:
    """Return whether a hyperparameter of that name is a rule."""
    return isinstance(name, str) and name.startswith(PREFIX)


def pattern_fault(name: str) -> str | None:
    """Return the fault of the pattern in a rule's name, as the allowed forms."""
    pattern = name.removeprefix(PREFIX)
    if "/" in pattern:
        return "must have no / in its pattern: no block's name has one"
    return None if _is_text(f"{pattern}=full") else "needs a pattern of blocks behind rule:, without blanks"


def value_fault(name: str, value: Scalar) -> str | None:
    """Return the fault of a rule's value, as the allowed values."""
    fine = isinstance(value, str) and (value == PLAN or _is_text(f"{name.removeprefix(PREFIX)}={value}"))
    return None if fine else "must be plan, full, low-rank, none, rank:N or per:element, per:row, per:neuron, per:head"


def rules_of(parameters: Mapping[str, Scalar]) -> tuple[str, ...]:
    """Return the rules that the hyperparameters state, in their order: later ones win."""
    assignments = ((name.removeprefix(PREFIX), value) for name, value in parameters.items() if is_rule(name))
    return tuple(f"{pattern}={value}" for pattern, value in assignments if value != PLAN)


def values_of(names: Iterable[str], rules: Iterable[str]) -> dict[str, Scalar]:
    """Return the values that rules of those names have in a run with these rules."""
    stated = {pattern: value for pattern, _, value in (rule.rpartition("=") for rule in rules)}
    return {name: stated.get(name.removeprefix(PREFIX), PLAN) for name in names if is_rule(name)}


def _is_text(text: str) -> bool:
    try:
        _RULE.validate_python(text)
    except ValidationError:
        return False
    return True
