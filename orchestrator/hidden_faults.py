"""Faults behind faults: what a check that needs sound fields would find, where some of them are not sound.

pydantic checks how fields go together only once each of them is right by itself, so that a user would be told of an
unknown option after a wrong rate, and of the baseline after that. Here the faulty parts of a copy are replaced by some
that go with everything, and the checks are asked again; what they say of a replaced part is left out.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from pydantic import BaseModel, ValidationError

from optim import catalog
from orchestrator.experiments import ComparisonSpec
from orchestrator.faults import Fault, pointer, shown, validation_faults
from worker.spec import Workload, option_faults

ROOMY: Final[Mapping[str, Any]] = {"model": "gpt2-tiny", "budget": {"steps": 10**9, "batch_sequences": 65_536}}
"""Instead of faulty fields of a workload: no warm-up is too long for it, no micro-batch too large."""
PARTS: Final = frozenset({"workload", "candidates"})
"""What has neither of them is no specification."""
BY_MODEL_OR_TASK: Final = ("data/sequence_length_tokens", "data/tokenizer", "initial_weights", "task")
"""Where a replaced model or task would be held against what was given."""


def with_hidden_faults(found: tuple[Fault, ...], fields: Any) -> tuple[Fault, ...]:
    """`found`, and what else is wrong with the same specification of a comparison, a sweep or a run."""
    if not found or not isinstance(fields, dict) or not PARTS & fields.keys():
        return found
    if fields.get("kind", "comparison") not in ("comparison", "sweep"):
        return found
    known = {fault.pointer for fault in found}
    more = [*_of_options(fields), *_of_workload(fields, known), *_of_comparison(fields, known)]
    return (*found, *{fault.pointer: fault for fault in more if fault.pointer not in known}.values())


def _of_options(fields: Mapping[str, Any]) -> Iterator[Fault]:
    """Options that the optimizer beside them does not have, or not so."""
    candidates = fields.get("candidates")
    for place, candidate in enumerate(candidates if isinstance(candidates, list) else ()):
        yield from _options_of(candidate, "optimizer", ("candidates", place))
    yield from _options_of(fields.get("optimizer"), "name", ("optimizer",))


def _options_of(given: Any, name: str, place: tuple[int | str, ...]) -> Iterator[Fault]:
    if not isinstance(given, dict) or not isinstance(given.get(name), str) or not catalog.knows(given[name]):
        return
    options = given.get("options")
    if isinstance(options, dict) and all(isinstance(key, str) for key in options):
        for where, value, allowed in option_faults(given[name], options):
            yield Fault(pointer=pointer((*place, *where)), value=shown(value), allowed=allowed)


def _of_workload(fields: Mapping[str, Any], known: set[str]) -> Iterator[Fault]:
    """What its sound fields say of each other."""
    workload = fields.get("workload")
    faulty = _below("/workload", known)
    if not isinstance(workload, dict) or not faulty:
        return
    sound = _sound(workload, Workload, faulty)
    without: tuple[str, ...] = BY_MODEL_OR_TASK if faulty & {"model", "task"} else ()
    without += ("data/dataset",) if "task" in faulty else ()
    for fault in _faults_of(Workload, {**ROOMY, **sound}):
        path = fault.pointer.lstrip("/")
        if path.partition("/")[0] not in faulty and not path.startswith(without):
            yield fault.model_copy(update={"pointer": f"/workload/{path}"})


def _of_comparison(fields: Mapping[str, Any], known: set[str]) -> Iterator[Fault]:
    """What its sound fields say of each other; of candidates only their names, where one of them is faulty."""
    if fields.get("kind", "comparison") != "comparison" or "candidates" not in fields:
        return
    faulty = _below("", known)
    sound = _sound(fields, ComparisonSpec, faulty)
    candidates = fields.get("candidates")
    if "candidates" in faulty:
        if not isinstance(candidates, list) or not candidates:
            return
        named = [_named(candidate) for candidate in candidates]
        if not all(named):
            return
        sound |= {"candidates": named, "unequal_grids": True}
        sound.pop("tuning", None)
    whole = {"name": "sound", "workload": ROOMY, "seeds": [0], **sound}
    for fault in _faults_of(ComparisonSpec, whole):
        if not _below("", {fault.pointer}) & faulty - {"candidates"}:
            yield fault


def _named(candidate: Any) -> dict[str, Any] | None:
    """A sound candidate of that one's name; None where it has none."""
    name = (candidate.get("label") or candidate.get("optimizer")) if isinstance(candidate, dict) else None
    return {"optimizer": "adamw", "label": name, "learning_rates": [1e-3]} if isinstance(name, str) else None


def _sound(given: Mapping[str, Any], model: type[BaseModel], faulty: set[str]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if name in model.model_fields and name not in faulty}


def _below(place: str, known: set[str]) -> set[str]:
    """The fields of that object in which a fault was found."""
    return {each.removeprefix(place).split("/")[1] for each in known if each.startswith(f"{place}/")}


def _faults_of(model: type[BaseModel], fields: Mapping[str, Any]) -> tuple[Fault, ...]:
    try:
        model.model_validate(dict(fields))
    except ValidationError as error:
        return validation_faults(error, model)
    return ()
