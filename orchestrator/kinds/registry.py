"""The kinds of experiments, by their field `kind`: what `POST /v1/experiments` takes and the database keeps.

A new kind is one more line in `ExperimentSpec`; `tests/integration/orchestrator/test_new_kind.py` has the smallest one.
An experiment without a `kind` is a comparison, as every one was before there were others.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, get_args

from pydantic import Discriminator, Tag, TypeAdapter, ValidationError

from orchestrator.kinds.comparison import ComparisonSpec
from orchestrator.kinds.experiment import Experiment
from orchestrator.kinds.scaling import ScalingSpec
from orchestrator.kinds.sweep import SweepSpec
from worker.schema import first_fault, read_stored

COMPARISON: Final = "comparison"
"""The kind of an experiment that names none."""


def kind(value: Any) -> Any:
    """Return the kind of a specification, of its JSON or of whatever was sent instead. Faults call it by this name."""
    return value.get("kind", COMPARISON) if isinstance(value, dict) else getattr(value, "kind", COMPARISON)


ExperimentSpec = Annotated[
    Annotated[ComparisonSpec, Tag(COMPARISON)]
    | Annotated[ScalingSpec, Tag("scaling")]
    | Annotated[SweepSpec, Tag("sweep")],
    Discriminator(kind),
]
"""A specification that a user may submit."""

KINDS: Final[Mapping[str, type[Experiment]]] = {
    spec.model_fields["kind"].default: spec for spec, _ in map(get_args, get_args(get_args(ExperimentSpec)[0]))
}
"""Kind → its class."""

_SPECS: TypeAdapter[ExperimentSpec] = TypeAdapter(ExperimentSpec)


def read_spec(text: str | bytes) -> ExperimentSpec:
    """Return a specification from its JSON, as the kind that it is."""
    return _SPECS.validate_json(text)


def validate_spec(fields: Any) -> ExperimentSpec:
    """Return a specification from its fields, as the kind that it is; raises `ValidationError` with all faults."""
    return _SPECS.validate_python(fields)


def read_stored_spec(text: str | bytes) -> ExperimentSpec:
    """Return a stored specification, as it stands, whether or not it would be refused today."""
    spec: ExperimentSpec = read_stored(ExperimentSpec, text)
    spec.models()  # those of a scaling experiment are ordered by sizes that only the catalog knows
    return spec


def refusal(text: str | bytes) -> str | None:
    """Return the reason why the specification would be refused today: its first fault; None if it would be accepted."""
    try:
        _SPECS.validate_json(text)
    except ValidationError as error:
        return first_fault(error)
    return None
