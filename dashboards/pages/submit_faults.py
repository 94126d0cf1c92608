"""Faults of `/new` as its reader knows things: in the form by the labels of its fields, in YAML by lines.

faults of a preview → `form_faults` | `text_faults` → what the page lists, each with the element that it leads to
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dashboards.pages.submit_form import SEQUENTIAL, TITLES, TUNING, WORKLOAD, SubmitForm, chosen_entries
from optim import catalog
from orchestrator.specs.faults import Fault
from orchestrator.specs.positions import Places
from orchestrator.specs.text import TextForm

_NAMES_AGAIN = re.compile(
    r"^(did you mean [^?]*\?|.*; did you mean [^?]*\?) (?:It must be one of|Known:) .*$", re.DOTALL
)


@dataclass(frozen=True, kw_only=True)
class ShownFault:
    """One fault, as the page lists it."""

    title: str
    """What it is about: a label of the form, or the line."""
    target: str | None
    """The element that holds it."""
    text: str
    field: str | None = None
    """The field of the form that it stands beside, too."""
    line: int | None = None
    pointer: str | None = None
    """Its place in the specification, where that is what the reader writes."""
    found: Any = None


@dataclass(frozen=True, kw_only=True)
class _FormPart:
    """Where in the form a part of the specification is."""

    title: str
    target: str
    field: str | None = None
    is_list: bool = False


def form_faults(faults: Iterable[Fault], form: SubmitForm) -> list[ShownFault]:
    """What is wrong with the form, by its labels."""
    parts = dict(_form_parts(form))
    return [_form_fault(fault, form, parts) for fault in faults]


def texts_by_field(faults: Iterable[ShownFault]) -> dict[str, list[str]]:
    """Field of the form → what stands beside it."""
    found: dict[str, list[str]] = {}
    for fault in faults:
        if fault.field is not None:
            found.setdefault(fault.field, []).append(fault.text)
    return found


def text_faults(faults: Iterable[Fault], text: str) -> list[ShownFault]:
    """What is wrong with a specification as text, by its lines; as the command line says it."""
    positions = Places(text, TextForm.YAML)
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
    """What is allowed, without the list of all names where a near one is told."""
    return _NAMES_AGAIN.sub(r"\1", allowed)


def _form_parts(form: SubmitForm) -> Iterator[tuple[str, _FormPart]]:
    """Pointer → where it is in the form; groups too, for what is about them as a whole."""
    yield "/workload", _FormPart(title="Model", target="field-model")
    yield "/candidates", _FormPart(title="Candidates", target="find-optimizer")
    yield "/tuning", _FormPart(title="Tune first", target="tuning")
    yield "/tuning/search", _FormPart(title="Tuned beside the learning rate", target="searched")
    yield "/sequential", _FormPart(title="Add seeds one after another", target="sequential")
    yield "/resources", _FormPart(title=TITLES["cpus"], target="field-cpus")
    named = {"/" + "/".join(path): name for name, path in WORKLOAD.items()}
    named |= {f"/tuning/{name}": field for name, field in TUNING.items()}
    named |= {f"/sequential/{name}": field for name, field in SEQUENTIAL.items()}
    for pointer, name in named.items():
        yield pointer, _FormPart(title=TITLES[name], target=f"field-{name}", field=name, is_list=True)
    for number, entry in enumerate(chosen_entries(form)):
        candidate = f"/candidates/{number}"
        yield candidate, _FormPart(title=entry.title, target=f"use:{entry.name}")
        rates = f"rates:{entry.name}"
        title = f"Learning rates of {entry.title}"
        yield f"{candidate}/learning_rates", _FormPart(title=title, target=rates, field=rates, is_list=True)
        for option in entry.options:
            name = f"option:{entry.name}:{option.name}"
            title = f"{option.name} of {entry.title}"
            yield f"{candidate}/options/{option.name}", _FormPart(title=title, target=name, field=name)


def _form_fault(fault: Fault, form: SubmitForm, parts: Mapping[str, _FormPart]) -> ShownFault:
    pointer = fault.pointer
    while pointer and pointer not in parts:
        pointer = pointer.rpartition("/")[0]
    part = parts.get(pointer, _FormPart(title="Specification", target="specification"))
    text = _special_words(fault, form)
    if text is None:
        text = _replace_names(without_names(fault.allowed))
        inside = fault.pointer.removeprefix(pointer)
        if part.is_list and re.fullmatch(r"/\d+", inside):
            text = text if fault.value is None else f"{_quoted(fault.value)}{'' if _goes_on(text) else ':'} {text}"
        elif inside:
            text = f"{inside.lstrip('/')} {text}"
    return ShownFault(title=part.title, target=part.target, text=text, field=part.field)


def _special_words(fault: Fault, form: SubmitForm) -> str | None:
    """For what a reader of the form would not understand, or not find; None for everything else."""
    baseline = form.value("baseline")
    if fault.pointer == "/baseline" and baseline not in form.chosen and catalog.knows(baseline):
        title = catalog.entry(baseline).title
        return f"{title} is not among the candidates: tick it, or choose another baseline"
    if fault.pointer == "/candidates" and not form.chosen:
        return "choose at least one candidate"
    if fault.allowed == "must have at least 1 item":
        return "give at least one"
    return None


def _replace_names(allowed: str) -> str:
    """The sentence with the labels of fields in the place of their names in a specification."""
    return _FIELD_NAMES.sub(lambda match: f"“{_LABELS[match[1]]}”", allowed)


def _labels() -> dict[str, str]:
    """`budget.steps`, `workload.budget.steps` and what else faults call a field → its label."""
    found: dict[str, str] = {}
    for name, path in WORKLOAD.items():
        found |= {".".join(path[start:]): TITLES[name] for start in range(max(len(path) - 1, 1))}
    for group, fields in (("tuning", TUNING), ("sequential", SEQUENTIAL)):
        found |= {f"{group}.{name}": TITLES[field] for name, field in fields.items()}
    names = {name: TITLES[name] for name in SEQUENTIAL}
    return {name: title for name, title in (found | names).items() if "." in name or "_" in name}


_LABELS = _labels()
_FIELD_NAMES = re.compile(
    rf"(?<![\w.])({'|'.join(map(re.escape, sorted(_LABELS, key=len, reverse=True)))})(?![\w.]*\w)"
)


def _goes_on(text: str) -> bool:
    """Whether it is the rest of a sentence on a value."""
    return text.startswith(("must ", "is "))


def _quoted(value: Any) -> str:
    return f"“{value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}”"
