"""Faults of `/new` with the element that each leads to: in the form its field, in YAML its line."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from dashboards.pages.submit_form import FIELDS, SubmitForm
from orchestrator.specs.faults import Fault
from orchestrator.specs.positions import SourcePositions

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
