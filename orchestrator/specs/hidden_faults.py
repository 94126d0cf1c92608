"""Faults behind faults: what a check that needs sound fields would find, where some of them are not sound.

pydantic checks how fields go together only once each of them is right by itself, so that a user would be told of an
unknown option after a wrong rate, and of the baseline after that. Here every faulty field of a copy is mended (a name
by the one that was probably meant, others by what goes with everything) and the copy is validated again, until nothing
new is found. What is said of a mended field, or follows from what replaced it, is left out.
"""

import copy
import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from pydantic import BaseModel, ValidationError

from optim import catalog
from optim.nearest import nearest
from orchestrator.kinds.registry import KINDS
from orchestrator.specs.faults import Fault, validation_faults
from worker.catalog import presets
from worker.spec.run import RunSpec

MOST_ROUNDS = 16
"""Validations of the copy: every round mends at least one field or gives up on the object around it."""
MANY = 1_000_000_000
"""Steps for which no warm-up is too long."""
FREE_SEED = 2**31 - 1
"""Seeds from here downwards replace faulty ones: nobody else has them."""

ROOMY: Final[Mapping[str, Any]] = {"model": "gpt2-tiny", "budget": {"steps": MANY, "batch_sequences": 65_536}}
FOLLOWING: Final[tuple[tuple[str, str], ...]] = (
    ("/workload(/model|/task)?", "/workload/(model|data/.*|initial_weights|task.*)"),
    ("/workload(/task)?", "/workload/(execution/.*|probes|precision)"),
    ("/workload/data/sequence_length_tokens|/workload/data", "/workload/task/answer_tokens"),
    ("/workload/data/tokenizer|/workload/data", "/workload/task/reward"),
    (r"(/candidates/\d+|)/optimizer(/name)?", r"\1(/optimizer)?/(options|rules|space)/.*"),
    (r"/candidates(/\d+(/optimizer|/label)?)?", "/baseline|/sizes/.*"),
    ("/sizes.*|/budgets.*|/workload", "/sizes.*|/budgets.*|/workload/(model|budget/steps)"),
)
"""(pointers that were replaced by something nobody meant, pointers that then say nothing)."""


def with_hidden_faults(
    found: tuple[Fault, ...], fields: Any, model: type[BaseModel] | None = None
) -> tuple[Fault, ...]:
    """`found`, and what else is wrong with the same specification; of which kind it should have been says `model`, or
    the fields themselves."""
    model = model or _model_of(fields)
    if not found or model is None:
        return found
    repair = _Repair(fields)
    told = {fault.pointer: fault for fault in found}
    newest: Sequence[Fault] = found
    for _ in range(MOST_ROUNDS):
        for fault in newest:
            repair.mend(fault.pointer)
        newest = _faults_of(model, repair.fields)
        told |= {fault.pointer: fault for fault in newest if fault.pointer not in told and repair.is_true(fault)}
        if not newest:
            break
    return (*found, *list(told.values())[len({fault.pointer for fault in found}) :])


def _model_of(fields: Any) -> type[BaseModel] | None:
    """What the fields should have been; None for what is no specification at all."""
    if not isinstance(fields, dict):
        return None
    if "candidates" not in fields and "optimizer" in fields:
        return RunSpec
    kind = fields.get("kind", "comparison")
    is_specification = "candidates" in fields or "workload" in fields
    return KINDS.get(kind) if is_specification and isinstance(kind, str) else None


def _faults_of(model: type[BaseModel], fields: Any) -> tuple[Fault, ...]:
    try:
        model.model_validate(fields)
    except ValidationError as error:
        return validation_faults(error, model)
    return ()


class _Repair:
    """A copy of a specification whose faulty fields are mended one after another."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self.fields: Any = copy.deepcopy(fields)
        self._mended: set[str] = set()
        self._replaced: set[str] = set()
        """Those of the mended for which nobody knows what was meant."""
        self._fresh = itertools.count()

    def is_true(self, fault: Fault) -> bool:
        """Whether the fault is one of what was given, not of what replaces a part of it."""
        for mended in self._mended:
            if (
                fault.pointer == mended
                or fault.pointer.startswith(f"{mended}/")
                or f"{mended}/".startswith(f"{fault.pointer}/")
            ):
                return False
        for cause, effect in FOLLOWING:
            for replaced in self._replaced:
                if (matched := re.fullmatch(cause, replaced)) and re.fullmatch(matched.expand(effect), fault.pointer):
                    return False
        return True

    def mend(self, pointer: str) -> None:
        """Put something sound in that place; where that was tried before, in the place of what holds it."""
        while pointer in self._mended and pointer:
            pointer = pointer.rpartition("/")[0]
        self._mended.add(pointer)
        steps = [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]
        holder = self.fields
        for place, step in enumerate(steps[:-1]):
            inner = _item(holder, step)
            if not isinstance(inner, dict | list):  # what should hold it is missing, or written short
                steps = steps[: place + 1]
                break
            holder = inner
        if steps:
            self._put(holder, steps, pointer)

    def _put(self, holder: Any, steps: list[str], pointer: str) -> None:
        *_, last = steps
        given = _item(holder, last)
        meant = next((find(given) for pattern, find in MEANT if re.fullmatch(pattern, pointer)), None)
        if meant is None:
            self._replaced.add(pointer)
        sound = meant if meant is not None else self._sound(pointer, given)
        if steps[0] == "candidates" and last == "optimizer" and isinstance(holder, dict) and isinstance(given, str):
            holder.setdefault("label", given[:60] or "none")  # the name by which a baseline knows it
        if isinstance(holder, list) and last.isdecimal() and int(last) < len(holder):
            holder[int(last)] = sound
        elif isinstance(holder, dict) and sound is not None:
            holder[last] = sound
        elif isinstance(holder, dict):
            holder.pop(last, None)

    def _sound(self, pointer: str, given: Any) -> Any:
        """What goes with everything else; None for what can be left out."""
        for pattern, make in SOUND:
            if re.fullmatch(pattern, pointer):
                return make(self, given)
        return None

    def _fresh_number(self) -> int:
        return next(self._fresh)

    def _candidate(self, given: Any = None) -> dict[str, Any]:
        name = next((given[key] for key in ("label", "optimizer") if _is_name(given, key)), None)
        label = name or f"mended {self._fresh_number()}"
        own = {} if self.fields.get("kind") == "sweep" else {"learning_rates": self._rates()}
        return {"optimizer": "adamw", "label": label[:60]} | own

    def _rates(self) -> list[float]:
        """As many as the others have."""
        candidates = self.fields.get("candidates")
        given = (
            [one.get("learning_rates") for one in candidates if isinstance(one, dict)]
            if isinstance(candidates, list)
            else []
        )
        most = max((len(rates) for rates in given if isinstance(rates, list)), default=2)
        return [1e-3 * (1 + place) for place in range(max(most, 1))]

    def _seeds(self, given: Any) -> list[int]:
        """Each of those given once; one of ours where none is left."""
        sound = [one for one in given if isinstance(one, int)] if isinstance(given, list) else []
        return list(dict.fromkeys(sound)) or [FREE_SEED - self._fresh_number()]

    def _unused_model(self) -> str:
        used = [_item(size, "model") for size in self.fields.get("sizes", ()) if isinstance(size, dict)]
        return next(name for name in presets.names() if name not in used)


def _item(holder: Any, step: str) -> Any:
    if isinstance(holder, dict):
        return holder.get(step)
    if isinstance(holder, list) and step.isdecimal() and int(step) < len(holder):
        return holder[int(step)]
    return None


def _is_name(given: Any, key: str) -> bool:
    return isinstance(given, dict) and isinstance(given.get(key), str) and bool(given[key])


def _meant(known: Callable[[], Sequence[str]]) -> Callable[[Any], str | None]:
    return lambda given: nearest(given, known()) if isinstance(given, str) else None


MEANT: Final[tuple[tuple[str, Callable[[Any], str | None]], ...]] = (
    (r"/workload/model|/sizes/\d+/model", _meant(presets.names)),
    (r"/candidates/\d+/optimizer|/optimizer/name", _meant(catalog.names)),
)
"""Names by which others are judged: the fault names the one that was probably meant, so the others are held to it."""
SOUND: Final[tuple[tuple[str, Callable[[_Repair, Any], Any]], ...]] = (
    ("/name", lambda repair, given: "mended"),
    ("/workload", lambda repair, given: dict(ROOMY)),
    ("/workload/model", lambda repair, given: ROOMY["model"]),
    ("/workload/budget", lambda repair, given: dict(ROOMY["budget"])),
    ("/workload/budget/steps", lambda repair, given: MANY),
    ("/workload/budget/batch_sequences", lambda repair, given: ROOMY["budget"]["batch_sequences"]),
    ("/seeds|/tuning/seeds", lambda repair, given: repair._seeds(given)),
    (r"(/seeds|/tuning/seeds)/\d+", lambda repair, given: FREE_SEED - repair._fresh_number()),
    ("/seed", lambda repair, given: 0),
    ("/candidates", lambda repair, given: [repair._candidate()]),
    (r"/candidates/\d+", lambda repair, given: repair._candidate(given)),
    (r"/candidates/\d+/optimizer|/optimizer/name", lambda repair, given: "adamw"),
    (r"/candidates/\d+/label", lambda repair, given: f"mended {repair._fresh_number()}"),
    (r"/candidates/\d+/learning_rates", lambda repair, given: repair._rates()),
    (r"/candidates/\d+/learning_rates/\d+", lambda repair, given: 2e-3 + 1e-6 * repair._fresh_number()),
    ("/unequal_grids", lambda repair, given: True),
    ("/optimizer", lambda repair, given: {"name": "adamw", "lr": 1e-3}),
    ("/optimizer/lr", lambda repair, given: 1e-3),
    ("/sizes", lambda repair, given: [{"model": ROOMY["model"]}]),
    (r"/sizes/\d+", lambda repair, given: {"model": repair._unused_model()}),
    (r"/sizes/\d+/model", lambda repair, given: repair._unused_model()),
    ("/budgets", lambda repair, given: [{"tokens": 10**12}]),
    (r"/budgets/\d+", lambda repair, given: {"tokens": 10**12 + 10**9 * repair._fresh_number()}),
)
"""(pointer, what replaces it). Anything else is taken away: its default goes with everything."""
