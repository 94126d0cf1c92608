"""In which fields the specifications of several runs differ, and which are the same in all of them. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import JsonValue

from orchestrator.external_runs import ExternalRun
from worker.records.result import Record
from worker.spec.run import RunSpec

ABSENT = "—"
"""What stands for a field that a specification lacks, where people read."""


class DifferingField(Record):
    """A field that is not the same in all runs."""

    field: str
    """Its place in the specification of a run: `optimizer.lr`, `workload.budget.steps`."""
    values: dict[str, JsonValue]
    """By run; a run is left out where its specification has no such field."""

    def values_of(self, runs: Sequence[str]) -> tuple[JsonValue, ...]:
        """The value of each of these runs, `ABSENT` where it has none."""
        return tuple(self.values.get(run, ABSENT) for run in runs)


class EqualField(Record):
    """A field that is the same in all runs."""

    field: str
    value: JsonValue


class SpecDifferences(Record):
    """The specifications of runs, field by field, as they are stored; defaults are written out."""

    runs: tuple[str, ...]
    """In the order in which they were asked for."""
    unreadable: tuple[str, ...]
    """Runs whose stored specification cannot be read. They are not compared."""
    different: tuple[DifferingField, ...]
    equal: tuple[EqualField, ...]

    def readable_runs(self) -> tuple[str, ...]:
        """The runs that are compared."""
        return tuple(run for run in self.runs if run not in self.unreadable)


def spec_fields(spec: RunSpec) -> dict[str, JsonValue]:
    """A specification field by field: `workload.budget.steps` → 300."""
    return dict(_flat_fields(spec.model_dump(mode="json")))


def external_fields(run: ExternalRun) -> dict[str, JsonValue]:
    """What another loop told of a run's settings: rate and seed under the names that specifications have for them, its
    configuration behind `config`."""
    told = {"optimizer.lr": run.lr, "seed": run.seed, "workload": run.workload}
    return {name: value for name, value in told.items() if value is not None} | dict(_flat_fields(run.config, "config"))


def differences_of(specs: Mapping[str, Mapping[str, JsonValue] | None]) -> SpecDifferences:
    """Compare specifications by their fields, run by run; None is a specification that cannot be read. Lists are
    compared whole, numbers exactly."""
    fields = {run_id: spec for run_id, spec in specs.items() if spec is not None}
    different, equal = [], []
    for name in dict.fromkeys(name for one in fields.values() for name in one):
        values = {run_id: one[name] for run_id, one in fields.items() if name in one}
        kinds = {(type(value), repr(value)) for value in values.values()}
        if len(values) == len(fields) and len(kinds) == 1:
            equal.append(EqualField(field=name, value=next(iter(values.values()))))
        else:
            different.append(DifferingField(field=name, values=values))
    return SpecDifferences(
        runs=tuple(specs),
        unreadable=tuple(run_id for run_id, spec in specs.items() if spec is None),
        different=tuple(different),
        equal=tuple(equal),
    )


def _flat_fields(value: Any, prefix: str = "") -> Iterator[tuple[str, JsonValue]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _flat_fields(inner, f"{prefix}.{key}" if prefix else key)
    else:
        yield prefix, value
