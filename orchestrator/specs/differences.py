"""Fields in which the specifications of several runs differ, and fields that are the same in all of them. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import JsonValue

from orchestrator.external_runs import ExternalRun
from worker.spec.run import RunSpec

ABSENT = "—"
"""The mark of a missing field, where people read."""


@dataclass(frozen=True, kw_only=True)
class SpecDifferences:
    """The specifications of runs, field by field, as they are stored; defaults are written out."""

    different: dict[str, tuple[JsonValue, ...]]
    """The value of each run by field, such as `optimizer.lr` or `workload.budget.steps`, `ABSENT` if it has none."""
    equal: dict[str, JsonValue]


def spec_fields(spec: RunSpec) -> dict[str, JsonValue]:
    """Return a specification field by field: `workload.budget.steps` → 300."""
    return dict(flat_fields(spec.model_dump(mode="json")))


def external_fields(run: ExternalRun) -> dict[str, JsonValue]:
    """Return another loop's settings of a run: rate and seed under the names of specifications, its configuration
    behind `config`."""
    named = {"optimizer.lr": run.lr, "seed": run.seed, "workload": run.workload}
    return {name: value for name, value in named.items() if value is not None} | dict(flat_fields(run.config, "config"))


def differences_of(specs: Mapping[str, Mapping[str, JsonValue] | None]) -> SpecDifferences:
    """Return the differences of runs, by their ids; None is a specification that cannot be read, and is not compared.
    Lists are compared whole, numbers exactly."""
    fields = [spec for spec in specs.values() if spec is not None]
    differences = SpecDifferences(different={}, equal={})
    for name in dict.fromkeys(name for spec in fields for name in spec):
        kinds = {(type(spec[name]), repr(spec[name])) if name in spec else None for spec in fields}
        if len(kinds) == 1:
            differences.equal[name] = fields[0][name]
        else:
            differences.different[name] = tuple((spec or {}).get(name, ABSENT) for spec in specs.values())
    return differences


def flat_fields(value: Any, prefix: str = "") -> Iterator[tuple[str, JsonValue]]:
    """Yield the values that are not mappings, by their way through mappings in one another: `optimizer.lr`."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from flat_fields(inner, f"{prefix}.{key}" if prefix else key)
    else:
        yield prefix, value
