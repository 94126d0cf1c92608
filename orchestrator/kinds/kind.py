"""The kinds of experiments, told apart by `kind`: what `POST /v1/experiments` takes and the database keeps.

An experiment without a `kind` is a comparison, as every one was before there were others.
"""

from typing import Annotated, Any

from pydantic import Discriminator, Tag, TypeAdapter, ValidationError

from orchestrator.kinds.comparison import ComparisonSpec
from orchestrator.kinds.experiment import Experiment, PlannedRun
from orchestrator.kinds.scaling import ScalingSpec
from orchestrator.kinds.sweep import SweepSpec
from worker.schema import as_stored


def kind(value: Any) -> Any:
    """The kind of a specification, of its JSON or of whatever was sent instead."""
    return value.get("kind", "comparison") if isinstance(value, dict) else getattr(value, "kind", "comparison")


ExperimentSpec = Annotated[
    Annotated[ComparisonSpec, Tag("comparison")]
    | Annotated[ScalingSpec, Tag("scaling")]
    | Annotated[SweepSpec, Tag("sweep")],
    Discriminator(kind),
]
"""What a user may submit."""

_SPECS: TypeAdapter[ComparisonSpec | SweepSpec] = TypeAdapter(ExperimentSpec)


def read_spec(text: str | bytes) -> ComparisonSpec | SweepSpec:
    """A specification from its JSON, as the kind that it is."""
    return _SPECS.validate_json(text)


def spec_of(fields: Any) -> ComparisonSpec | SweepSpec:
    """A specification from its fields, as the kind that it is; raises `ValidationError` with all faults."""
    return _SPECS.validate_python(fields)


def stored_spec(text: str | bytes) -> ComparisonSpec | SweepSpec:
    """A stored specification; one that would be refused today, as it stands."""
    try:
        return read_spec(text)
    except ValidationError:
        with as_stored():
            return _SPECS.validate_json(text)


def planned_runs(spec: Experiment) -> tuple[PlannedRun, ...]:
    """The runs that an experiment begins with, of what was looked through with its specification."""
    with as_stored():
        return spec.first_runs()
