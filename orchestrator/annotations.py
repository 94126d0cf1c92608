"""Labels and a note: what people write about an experiment after its submission. No part of its specification or hash.

A label is plain text; a note is Markdown, which pages and reports render and everybody else reads as it was written.
"""

import unicodedata
from collections.abc import Iterable
from typing import Annotated

from pydantic import AfterValidator, ConfigDict, Field

from orchestrator.errors import ConflictError
from orchestrator.names import plain_name
from worker.records.result import Record

LONGEST_LABEL = 60
MOST_LABELS = 20
LONGEST_NOTE = 10_000
"""Characters, some five pages; what needs more is a document of its own, and the note the place of its link."""


def plain_label(text: str) -> str:
    """Return a label as it is kept: composed characters, no blank at either end. Raises `ValueError` for what is none.

    Commas part labels where several are written in one field. What is not printable could turn the text around it.
    """
    label = plain_name(unicodedata.normalize("NFC", text).strip())
    if not label or len(label) > LONGEST_LABEL or "," in label or not label.isprintable():
        raise ValueError(f"must be 1 to {LONGEST_LABEL} printable characters without a comma")
    return label


def plain_note(text: str) -> str:
    """Return a note as it is kept: lines end in a line feed, and there are no other control characters but tabs."""
    note = text.replace("\r\n", "\n").replace("\r", "\n").strip()
    if len(note) > LONGEST_NOTE:
        raise ValueError(f"must have at most {LONGEST_NOTE:,} characters; this one has {len(note):,}")
    if strange := next(
        (letter for letter in note if unicodedata.category(letter) in ("Cc", "Cs") and letter not in "\n\t"), None
    ):
        raise ValueError(f"must be plain text; it has the control character U+{ord(strange):04X}")
    return note


def sort_labels(labels: Iterable[str]) -> tuple[str, ...]:
    """Return each label once, by the alphabet, on every database alike."""
    return tuple(sorted(set(labels), key=lambda label: (label.casefold(), label)))


Label = Annotated[str, AfterValidator(plain_label), Field(json_schema_extra={"minLength": 1, "pattern": "^[^,]*$"})]
Labels = Annotated[tuple[Label, ...], Field(max_length=MOST_LABELS), AfterValidator(sort_labels)]
NoteText = Annotated[str, AfterValidator(plain_note)]


class Note(Record):
    """A note about an experiment, in Markdown."""

    text: str
    edited_at: float
    edited_by: str | None = None
    """The key that edited it last; null if the service had none."""
    editor: str | None = None
    """The label of the editor's key."""


class LabelChange(Record):
    """Labels to be added and to be taken away; the others stay, whoever edits at the same time."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"add": ["paper"], "remove": ["draft"]}]})

    add: Labels = ()
    remove: Labels = ()
    """The labels to remove; a missing one changes nothing."""


def changed_labels(had: Iterable[str], change: LabelChange) -> tuple[str, ...]:
    """Return the labels after a change. Raises `ConflictError` if they would be too many."""
    labels = sort_labels({*had, *change.add} - {*change.remove})
    if len(labels) > MOST_LABELS:
        raise ConflictError(f"it would have {len(labels)} labels, of at most {MOST_LABELS}; remove some first")
    return labels


class AnnotationChange(Record):
    """A change of an experiment's labels and note; omitted fields stay as they are."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"labels": ["paper", "tiny"], "note": "The first look."}]}
    )

    labels: Labels | None = None
    """All of its labels from now on; null or an empty list takes them away. Each has at most 60 printable characters
    and no comma; at most 20."""
    note: NoteText | None = None
    """The new note, in Markdown of at most 10,000 characters; null or an empty text removes it."""
