"""The submit form: what its fields are called, which part of a specification each one is, and what they say. Pure.

    pairs of a form → `fields_of` → the fields of a specification → `ComparisonSpec` judges them
    a specification → `values_of` → what the form shows

Everything that is not in the form (tasks, probes, execution, labels …) is written as YAML, on the same page.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from optim import catalog
from optim.catalog import OptimizerEntry, Scalar
from orchestrator.specs.faults import Fault
from worker.catalog import presets

WORKLOAD: dict[str, tuple[str, ...]] = {
    "name": ("name",),
    "model": ("workload", "model"),
    "dataset": ("workload", "data", "dataset"),
    "tokenizer": ("workload", "data", "tokenizer"),
    "sequence": ("workload", "data", "sequence_length_tokens"),
    "steps": ("workload", "budget", "steps"),
    "batch": ("workload", "budget", "batch_sequences"),
    "warmup": ("workload", "schedule", "warmup_steps"),
    "every": ("workload", "evaluation", "every_steps"),
    "held_out": ("workload", "evaluation", "sequences"),
    "precision": ("workload", "precision"),
    "seeds": ("seeds",),
    "baseline": ("baseline",),
    "cpus": ("resources", "cpus"),
    "gpus": ("resources", "gpus"),
    "priority": ("priority",),
}
"""Field of the form → its place in the specification."""
LISTS = frozenset({"seeds", "tuning_seeds"})
TEXTS = frozenset({"name", "model", "dataset", "tokenizer", "precision", "baseline"})
"""Taken as they are, even where they look like a number."""

DEFAULTS: dict[str, str] = {
    "name": "New comparison", "model": "gpt2-nano", "dataset": "python-stdlib", "tokenizer": "byte", "sequence": "128",
    "steps": "150", "batch": "8", "warmup": "15", "every": "50", "held_out": "128", "precision": "fp32",
    "seeds": "1, 2, 3, 4, 5", "baseline": "adamw", "cpus": "1", "gpus": "0", "priority": "0",
    "tuning_seeds": "1001, 1002, 1003", "extend_grid": "6",
}  # fmt: skip
"""A workload that trains in seconds on a CPU, and on which the suggested grids have their best rate inside."""
CHOSEN = ("adamw", "adapm", "adapm-mini")
GRID = (0.5, 1.0, 2.0)
"""Factors around a learning rate: the smallest grid whose best rate can be interior."""
NARROW = 256
"""Hidden size below which a model is one of our own small ones, which train for some hundred steps."""
NARROW_RATE = 4e-3
"""The centre for optimizers whose steps have Adam's size on such a model: on gpt2-nano over 150 steps AdamW, AdaPM and
AdaPM-mini are best within half and twice of it. The catalog's is for models from 100 M parameters on."""

WHOLE = re.compile(r"[+-]?\d{1,18}")
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?")
LIST = re.compile(r"[\s,;]+")


@dataclass(frozen=True, kw_only=True)
class SubmitForm:
    """What the form says: every field as text, and which boxes are ticked."""

    values: Mapping[str, str]
    chosen: frozenset[str]
    """Optimizers that are candidates."""
    tuning: bool

    def value(self, name: str) -> str:
        """The text of a field; its default where nothing was sent."""
        return self.values.get(name, DEFAULTS.get(name, ""))

    def rates(self, entry: OptimizerEntry) -> str:
        """The learning rates of an optimizer as text; empty are those that are suggested."""
        return self.values.get(f"rates:{entry.name}", "")

    def suggested_rates(self, entry: OptimizerEntry) -> str:
        """Those that are taken where none are written, by the model that is chosen."""
        return grid(entry, self.value("model"))

    def option(self, entry: OptimizerEntry, name: str) -> str:
        """An option's text; empty is its default."""
        return self.values.get(f"option:{entry.name}:{name}", "")

    def changed_options(self, entry: OptimizerEntry) -> int:
        """How many options differ from their defaults."""
        return sum(bool(self.option(entry, option.name)) for option in entry.options)


EMPTY = SubmitForm(values={}, chosen=frozenset(CHOSEN), tuning=True)
"""The form as it is first shown."""


def grid(entry: OptimizerEntry, model: str) -> str:
    """The learning rates that are suggested for a model: a centre, half of it and twice as much."""
    is_narrow = model in presets.names() and presets.preset(model).hidden_size < NARROW
    is_adams = entry.learning_rate == catalog.entry("adamw").learning_rate
    centre = NARROW_RATE if is_narrow and is_adams else entry.learning_rate
    return ", ".join(f"{factor * centre:g}" for factor in GRID)


def read(pairs: Iterable[tuple[str, str]]) -> SubmitForm:
    """The form as a browser sends it; unknown names do nothing."""
    sent = [(name, value.strip()) for name, value in pairs]
    return SubmitForm(
        values=dict(sent),
        chosen=frozenset(value for name, value in sent if name == "use"),
        tuning=any(name == "tuning" for name, _ in sent),
    )


def fields_of(form: SubmitForm) -> dict[str, Any]:
    """The specification that a form stands for, unchecked: what is no number stays text, for its fault to name."""
    fields: dict[str, Any] = {}
    for name, place in WORKLOAD.items():
        text = form.value(name)
        if text or name in ("name", "model"):
            _put(fields, place, _parse_field(name, text))
    fields["candidates"] = [_candidate(form, entry) for entry in chosen_entries(form)]
    if form.tuning:
        fields["tuning"] = {
            name: _parse_field(field, form.value(field))
            for name, field in (("seeds", "tuning_seeds"), ("extend_grid", "extend_grid"))
            if form.value(field)
        }
    return fields


def chosen_entries(form: SubmitForm) -> list[OptimizerEntry]:
    """The ticked optimizers, in the order of the catalog."""
    return [entry for entry in catalog.CATALOG if entry.name in form.chosen]


def field_faults(faults: Iterable[Fault], form: SubmitForm) -> tuple[dict[str, list[str]], list[Fault]]:
    """(field of the form → what is wrong with it, faults that belong to no field)."""
    places = {"/" + "/".join(place): name for name, place in WORKLOAD.items()}
    places |= {"/tuning/seeds": "tuning_seeds", "/tuning/extend_grid": "extend_grid"}
    for number, entry in enumerate(chosen_entries(form)):
        places[f"/candidates/{number}/learning_rates"] = f"rates:{entry.name}"
        for option in entry.options:
            places[f"/candidates/{number}/options/{option.name}"] = f"option:{entry.name}:{option.name}"
    by_field: dict[str, list[str]] = {}
    others: list[Fault] = []
    for fault in faults:
        # A fault in an item of a list stands at the field that holds the list.
        name = places.get(fault.pointer) or places.get(fault.pointer.rpartition("/")[0])
        if name is None:
            others.append(fault)
        else:
            by_field.setdefault(name, []).append(fault.allowed)
    return by_field, others


def _candidate(form: SubmitForm, entry: OptimizerEntry) -> dict[str, Any]:
    candidate: dict[str, Any] = {
        "optimizer": entry.name,
        "learning_rates": _list(form.rates(entry) or form.suggested_rates(entry)),
    }
    options = {
        option.name: _option(option.kind, form.option(entry, option.name))
        for option in entry.options
        if form.option(entry, option.name)
    }
    return candidate | ({"options": options} if options else {})


def _option(kind: str, text: str) -> Scalar:
    if text == "null":
        return None
    if kind == "bool":
        return {"true": True, "false": False}.get(text, text)
    return text if kind == "choice" else _number(text)


def _parse_field(name: str, text: str) -> Any:
    if name in LISTS:
        return _list(text)
    return text if name in TEXTS else _number(text)


def _list(text: str) -> list[Scalar]:
    """Numbers between commas or blanks; learning rates are numbers with a point, whatever they look like."""
    return [_number(item) for item in LIST.split(text) if item]


def _number(text: str) -> int | float | str:
    if WHOLE.fullmatch(text):
        return int(text)
    return float(text) if NUMBER.fullmatch(text) else text


def _put(fields: dict[str, Any], place: tuple[str, ...], value: Any) -> None:
    for name in place[:-1]:
        fields = fields.setdefault(name, {})
    fields[place[-1]] = value
