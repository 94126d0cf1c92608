"""The form of `/new` as data, and the specification that it builds.

    pairs of a form → `read_form` → `SubmitForm` → `fields_of` → the fields of a specification, which `preview` judges

What the form has no field for (tasks, probes, execution, labels …) is written as YAML, on the same page.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from optim import catalog
from optim.catalog import OptimizerEntry, Scalar
from orchestrator.kinds.tuning import SEARCHES, TRIALS, TUNING_SEEDS
from orchestrator.specs.faults import Fault
from orchestrator.specs.positions import SourcePositions
from worker.catalog import presets


class FormField(NamedTuple):
    """A field of the form, beside those of each candidate."""

    pointer: str
    """Its place in the specification."""
    title: str
    default: str
    """The demo's workload, which trains in seconds on a CPU."""
    kind: Literal["number", "text", "list"] = "number"
    """Texts are taken as they are, even where they look like a number."""


FIELDS = {
    "name": FormField("/name", "Name", "New comparison", "text"),
    "model": FormField("/workload/model", "Model", "gpt2-nano", "text"),
    "dataset": FormField("/workload/data/dataset", "Dataset", "python-stdlib", "text"),
    "tokenizer": FormField("/workload/data/tokenizer", "Tokenizer", "byte", "text"),
    "sequence": FormField("/workload/data/sequence_length_tokens", "Tokens per sequence", "64"),
    "steps": FormField("/workload/budget/steps", "Steps", "150"),
    "batch": FormField("/workload/budget/batch_sequences", "Sequences per step", "8"),
    "warmup": FormField("/workload/schedule/warmup_steps", "Warm-up steps", "15"),
    "shape": FormField("/workload/schedule/shape", "Schedule", "cosine", "text"),
    "every": FormField("/workload/evaluation/every_steps", "Steps between validations", "50"),
    "held_out": FormField("/workload/evaluation/sequences", "Held-out sequences", "1024"),
    "precision": FormField("/workload/precision", "Precision", "fp32", "text"),
    "seeds": FormField("/seeds", "Seeds", "1, 2, 3, 4, 5, 6, 7, 8, 9, 10", "list"),
    "baseline": FormField("/baseline", "Baseline", "adamw", "text"),
    "cpus": FormField("/resources/cpus", "CPUs", "1"),
    "gpus": FormField("/resources/gpus", "GPUs", "0"),
    "priority": FormField("/priority", "Priority", "0"),
    "method": FormField("/tuning/method", "Tuned by", "line", "text"),
    "tuning_seeds": FormField("/tuning/seeds", "Tuning seeds", ", ".join(map(str, TUNING_SEEDS)), "list"),
    "trials": FormField("/tuning/trials", "Trials of each candidate", str(TRIALS)),
    "replicates": FormField("/tuning/replicates", "Replicates", "1"),
    "search": FormField("/tuning/search", "Tuned hyperparameters", "lr, warmup, beta2, weight_decay", "list"),
    "first_seeds": FormField("/sequential/first_seeds", "Seeds at the first look", "3"),
}
GROUPS = ("tuning", "sequential")
"""Parts of the specification that are there if their box is ticked."""
SHAPES = (("cosine", "Cosine"), ("linear", "Linear"), ("wsd", "Constant, then down"), ("constant", "Constant"))
PRECISIONS = (("fp32", "fp32"), ("bf16", "bf16"))
CHOSEN = ("adamw", "adapm", "adapm-mini")
GRID = (0.5, 1.0, 2.0)
"""Factors around a learning rate: the smallest grid whose best rate can be interior."""
NARROW = 256
"""Hidden size below which a model is one of our own small ones, which train for some hundred steps."""
NARROW_RATE = 4e-3
"""The rates for optimizers whose steps have Adam's size on such a model: on gpt2-nano over 150 steps AdamW, AdaPM and
AdaPM-mini are best within half and twice of it. The catalog's is for models from 100 M parameters on."""
WHOLE = re.compile(r"[+-]?\d{1,18}")
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?")
LIST = re.compile(r"[\s,;]+")


@dataclass(frozen=True, kw_only=True)
class SubmitForm:
    """The form's fields as text, and the ticked boxes."""

    values: Mapping[str, str]
    chosen: frozenset[str]
    """Optimizers that are candidates."""
    groups: frozenset[str]
    """The groups, of `GROUPS`."""

    def value(self, name: str) -> str:
        """Return the text of a field; its default where nothing was sent."""
        return self.values.get(name, FIELDS[name].default if name in FIELDS else "")

    def candidates(self) -> list[OptimizerEntry]:
        """Return the ticked optimizers, in the catalog's order."""
        return [entry for entry in catalog.CATALOG if entry.name in self.chosen]

    def suggested_rates(self, entry: OptimizerEntry) -> str:
        """Return the suggested learning rates for the chosen model: three for a grid, else one."""
        centre = suggested_rate(entry, self.value("model"))
        is_grid = "tuning" in self.groups and self.value("method") == "grid"
        return ", ".join(f"{factor * centre:g}" for factor in (GRID if is_grid else (1.0,)))

    def changes_options(self, entry: OptimizerEntry) -> bool:
        """Return whether an option differs from its default."""
        return any(self.value(f"option:{entry.name}:{option.name}") for option in entry.options)


EMPTY = SubmitForm(values={}, chosen=frozenset(CHOSEN), groups=frozenset({"tuning"}))
"""The form as it is first shown."""


def suggested_rate(entry: OptimizerEntry, model: str) -> float:
    """Return the suggested learning rate for a model."""
    is_narrow = model in presets.names() and presets.preset(model).hidden_size < NARROW
    is_adams = entry.learning_rate == catalog.entry("adamw").learning_rate
    return NARROW_RATE if is_narrow and is_adams else entry.learning_rate


def read_form(pairs: Iterable[tuple[str, str]]) -> SubmitForm:
    """Return the form as a browser sends it; unknown names do nothing."""
    sent = [(name, value.strip()) for name, value in pairs]
    return SubmitForm(
        values=dict(sent),
        chosen=frozenset(value for name, value in sent if name == "use"),
        groups=frozenset(name for name, _ in sent if name in GROUPS),
    )


def fields_of(form: SubmitForm) -> dict[str, Any]:
    """Return the specification of a form, unchecked: what is not a number stays text, for its fault to name."""
    fields: dict[str, Any] = {"workload": {"budget": {}}}
    for name, field in FIELDS.items():
        group, text = field.pointer.split("/")[1], form.value(name)
        is_left_out = group in GROUPS and (group not in form.groups or not _has_method(form, name))
        if not is_left_out and (text or name in ("name", "model")):
            _put(fields, field, text)
    for group in form.groups:
        fields.setdefault(group, {})
    fields["candidates"] = [_candidate(form, entry) for entry in form.candidates()]
    return fields


def _has_method(form: SubmitForm, name: str) -> bool:
    """Return whether the form's way of tuning has that field: a grid's rates are its trials, and a search alone has
    axes."""
    method = form.value("method")
    return {"trials": method != "grid", "search": method in SEARCHES}.get(name, True)


def _put(fields: dict[str, Any], field: FormField, text: str) -> None:
    *holders, last = field.pointer.split("/")[1:]
    for holder in holders:
        fields = fields.setdefault(holder, {})
    fields[last] = text if field.kind == "text" else _list(text) if field.kind == "list" else _number(text)


def _candidate(form: SubmitForm, entry: OptimizerEntry) -> dict[str, Any]:
    rates = form.value(f"rates:{entry.name}") or form.suggested_rates(entry)
    texts = {option: form.value(f"option:{entry.name}:{option.name}") for option in entry.options}
    options = {option.name: _option(option.kind, text) for option, text in texts.items() if text}
    return {"optimizer": entry.name, "learning_rates": _list(rates)} | ({"options": options} if options else {})


def _option(kind: str, text: str) -> Scalar:
    if text == "null":
        return None
    if kind == "bool":
        return {"true": True, "false": False}.get(text, text)
    return text if kind == "choice" else _number(text)


def _list(text: str) -> list[Scalar]:
    """Return the numbers between commas or blanks; learning rates are numbers with a point, whatever they look like."""
    return [_number(item) for item in LIST.split(text) if item]


def _number(text: str) -> int | float | str:
    if WHOLE.fullmatch(text):
        return int(text)
    return float(text) if NUMBER.fullmatch(text) else text


# Faults with the element that each leads to: in the form its field, in YAML its line.


_NAMES_AGAIN = re.compile(
    r"^(did you mean [^?]*\?|.*; did you mean [^?]*\?) (?:It must be one of|Known:) .*$", re.DOTALL
)


@dataclass(frozen=True, kw_only=True)
class ShownFault:
    """A fault, as the page lists it."""

    title: str
    """The label of its field, or its line."""
    target: str
    """The element's id."""
    text: str
    line: int | None = None
    pointer: str | None = None
    """Its place in the specification, if the reader writes a specification."""
    found: Any = None


def form_faults(faults: Iterable[Fault], form: SubmitForm) -> list[ShownFault]:
    """Return the faults of a specification that the form has built, at the fields that it was built of."""
    elements = _elements(form)
    shown = []
    for fault in faults:
        pointer = fault.pointer
        while pointer not in elements:
            pointer = pointer.rpartition("/")[0]
        title, target = elements[pointer]
        is_item = pointer != fault.pointer and fault.value is not None
        text = without_names(fault.allowed)
        shown.append(ShownFault(title=title, target=target, text=text, found=fault.value if is_item else None))
    return shown


def text_faults(faults: Iterable[Fault], text: str) -> list[ShownFault]:
    """Return the faults of a specification as text, at its lines, as the command line shows them."""
    positions = SourcePositions(text)
    return [
        ShownFault(
            title=f"line {(line := positions.position(fault.pointer).line)}",
            target="yaml",
            text=without_names(fault.allowed),
            line=line,
            pointer=fault.pointer or "/",
            found=fault.value,
        )
        for fault in faults
    ]


def without_names(allowed: str) -> str:
    """Return what is allowed, without the list of all names where a near one is suggested."""
    return _NAMES_AGAIN.sub(r"\1", allowed)


def _elements(form: SubmitForm) -> dict[str, tuple[str, str]]:
    """Return pointer → title and id of the form element that wrote that part of the specification."""
    elements = {
        "": ("Specification", "specification"),
        "/candidates": ("Candidates", "candidates"),
        "/tuning": ("Tune first", "tuning"),
        "/sequential": ("Add seeds one after another", "sequential"),
        "/resources": ("CPUs", "field-cpus"),
    }
    elements |= {field.pointer: (field.title, f"field-{name}") for name, field in FIELDS.items()}
    for number, entry in enumerate(form.candidates()):
        candidate = f"/candidates/{number}"
        elements[candidate] = (entry.title, f"use:{entry.name}")
        elements[f"{candidate}/learning_rates"] = (f"Learning rates of {entry.title}", f"rates:{entry.name}")
        for option in entry.options:
            title, target = f"{option.name} of {entry.title}", f"option:{entry.name}:{option.name}"
            elements[f"{candidate}/options/{option.name}"] = (title, target)
    return elements
