"""A specification as its author would write it: without what holds anyway, and with every word that tells kinds apart.

    spec ─► `brief` ─► fields ─► `kinds.spec_of` ─► an equal spec

"What holds anyway" is what the specification would have without the field, which for a workload depends on its task.
A `kind` always stays: an experiment, a task or a range without it would be another one. Pure.
"""

from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from orchestrator.experiments import ComparisonSpec
from orchestrator.scaling_spec import ScalingSpec
from orchestrator.sweeps import SweepSpec
from worker.spec import Workload, as_stored

KIND = "kind"


def brief(spec: ComparisonSpec | SweepSpec) -> dict[str, Any]:
    """The fields of a specification, as short as they can be."""
    fields = _fields(spec, None)
    if isinstance(spec, ScalingSpec):  # its sizes and budgets say both
        workload = fields["workload"]
        del workload["model"], workload["budget"]["steps"]
        if not workload["budget"]:
            del workload["budget"]
    return fields


def _fields(one: BaseModel, usual: BaseModel | None) -> dict[str, Any]:
    """What of `one` differs from `usual`, which stands for the defaults of its class where they are others."""
    if isinstance(one, Workload):
        usual = _usual(one)
    written = one.model_dump(mode="json")
    found: dict[str, Any] = {}
    for name, field in type(one).model_fields.items():
        if name not in written:
            continue
        value = getattr(one, name)
        default = _default(field) if usual is None else getattr(usual, name)
        if name == KIND or field.is_required() or value != default:
            of_same_class = isinstance(default, BaseModel) and type(default) is type(value)
            found[name] = _plain(value, written[name], default if of_same_class else None)
    return found


def _plain(value: Any, written: Any, usual: BaseModel | None) -> Any:
    """A value as JSON has it; specifications inside of it are shortened as well."""
    if isinstance(value, BaseModel):
        return _fields(value, usual)
    if isinstance(value, tuple):
        return [_plain(each, as_json, None) for each, as_json in zip(value, written, strict=True)]
    if isinstance(value, dict):
        return {name: _plain(each, written[name], None) for name, each in value.items()}
    return written


def _usual(workload: Workload) -> Workload:
    """The workload that task, model and steps alone would make; the task itself is held to the usual one."""
    task = workload.task.model_dump(mode="json")
    fields = {"task": task, "model": workload.model, "budget": {"steps": workload.budget.steps}}
    with as_stored():
        found = Workload.model_validate(fields)
    return found.model_copy(update={"task": _default(Workload.model_fields["task"])})


def _default(field: FieldInfo) -> Any:
    return field.get_default(call_default_factory=True, validated_data={})
