"""The fields that the table of all runs has, for its columns, its order, its groups and its filters; its records."""

from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum
from typing import Literal

from orchestrator.errors import OrchestratorError
from orchestrator.external_runs import SourceKind

LONGEST_NAME = 200


class FieldKind(StrEnum):
    """The type of a field."""

    NUMBER = "number"
    TIME = "time"
    """Seconds since 1970; a filter may say them as a date."""
    TEXT = "text"
    JSON = "json"
    """Either, as each run has it."""


_NUMBERS = (
    "lr", "seed", "step", "steps_total", "val_loss", "train_loss", "final_val_loss", "tokens_per_second",
    "device_seconds",
)  # fmt: skip
_TEXTS = (
    "id", "origin", "experiment", "experiment_id", "candidate", "optimizer", "model", "workload", "source", "state",
    "reason",
)  # fmt: skip
_TIMES = ("created_at", "started_at", "ended_at")
NAMED_FIELDS: dict[str, FieldKind] = (
    dict.fromkeys(_TEXTS, FieldKind.TEXT)
    | dict.fromkeys(_NUMBERS, FieldKind.NUMBER)
    | dict.fromkeys(_TIMES, FieldKind.TIME)
)
DOCUMENTS = ("spec", "result", "config", "metric")
"""The documents whose parts are fields: `spec.optimizer.lr`, `result.verdict`, an external run's `config.width`,
`metric.val/loss`."""
DEFAULT_COLUMNS = ("experiment", "candidate", "lr", "seed", "val_loss", "state", "created_at")


class FilterError(OrchestratorError):
    """A query of the table of runs that cannot be understood: a filter, a field, a page."""


@dataclass(frozen=True, kw_only=True)
class RunField:
    """A field of a run."""

    name: str
    kind: FieldKind
    document: str = ""
    """The document that it is a part of; empty for a named field."""
    path: tuple[str, ...] = ()


def find_field(name: str) -> RunField:
    """Return the field of that name. Raises `FilterError`, with what may have been meant."""
    if (kind := NAMED_FIELDS.get(name)) is not None:
        return RunField(name=name, kind=kind)
    document, _, dotted_path = name.partition(".")
    if "," in name and document != "metric":
        raise FilterError(f"{name[:40]!r} is a list with commas; give each field by itself")
    if document in DOCUMENTS and dotted_path:
        path = (dotted_path,) if document == "metric" else tuple(dotted_path.split("."))
        unfit = any(not part or '"' in part or "\\" in part or not part.isprintable() for part in path)
        if unfit or len(name) > LONGEST_NAME:
            raise FilterError(f"{name[:40]!r} is not a path into a document; write one like spec.optimizer.lr")
        return RunField(name=name, kind=FieldKind.JSON, document=document, path=path)
    matches = get_close_matches(name[:LONGEST_NAME], NAMED_FIELDS, n=1)
    hint = f"; did you mean {matches[0]}?" if matches else ""
    parts = ", ".join(f"{document}.…" for document in DOCUMENTS)
    raise FilterError(f"there is no field {name[:40]!r}{hint or '.'} Fields: {', '.join(NAMED_FIELDS)}, {parts}")


Value = str | int | float | None


@dataclass(frozen=True, kw_only=True)
class TableRow:
    """A run of the table."""

    id: str
    source: SourceKind
    experiment_id: str
    values: tuple[Value, ...]
    """The values, one for each column."""

    @property
    def is_external(self) -> bool:
        """Return whether it was not measured here."""
        return self.source != "bench"

    def cursor(self) -> str:
        """Return the run's key among those of both origins."""
        return f"{EXTERNAL}{self.id}" if self.is_external else self.id


EXTERNAL = "external:"
"""Stands before the id of an external run where a bench's own run might be meant."""


@dataclass(frozen=True, kw_only=True)
class RunGroup:
    """The runs of one origin that share the value of each field: logged values are in no mean of measured ones."""

    values: tuple[Value, ...]
    origin: Literal["bench", "external"]
    runs: int
    best: float | None
    """The lowest of their validation losses."""
    mean: float | None
    worst: float | None
    """The highest."""
