"""The files of a bundle, and their content as records. Schema 3.

    document.json          specification, state and every run with its result; and the figures that follow from them
    points.parquet         every point of every run, as `adapm-bench export` writes it
    signer.pem             the public key of the publisher
    statement.dsse.json    the signed statement: the digest of each file above (`signing.py`)

A bundle comes from a stranger: links, other files and larger files than these can be are refused before they are read.
"""

import hashlib
import io
import json
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError
from pydantic_core import from_json, to_json

from orchestrator.analysis.comparison import ValidationCurve
from orchestrator.export.document import ExperimentDocument
from worker.schema import canonical_json, first_fault, read_stored

SCHEMA_VERSION: Final = 3
DOCUMENT, POINTS, SIGNER, STATEMENT = "document.json", "points.parquet", "signer.pem", "statement.dsse.json"
ANSWERS: Final = ("comparison", "sweep", "cells", "fit")
"""Fields of a document that follow from the others."""
SENTENCES: Final = frozenset({"verdict", "notes", "no_law", "peak_memory_note"})
"""Fields of answers that are worded from their figures, and may be worded otherwise tomorrow."""
MOST_BYTES: Final = {DOCUMENT: 1 << 30, POINTS: 1 << 32, SIGNER: 1 << 12, STATEMENT: 1 << 20}
"""Larger files are not read."""
MOST_POINTS: Final = 10_000_000
"""The most points of all runs together, because a small Parquet file may claim any number."""
MOST_UNPACKED_BYTES: Final = 1 << 32


class BundleError(Exception):
    """A bundle is refused: the name of the check that it fails, why, and for each figure that does not follow from its
    runs its path (`comparison.rows.1.difference.mean`), the stored and the recomputed value."""

    def __init__(self, check: str, reason: str, differences: Sequence[dict[str, Any]] = ()) -> None:
        super().__init__(f"{check}: {reason}")
        self.check, self.reason, self.differences = check, reason, tuple(differences)


@dataclass(frozen=True, kw_only=True)
class Bundle:
    """The content of a bundle, read but not yet checked."""

    document: ExperimentDocument
    """The bundle's document without its answers."""
    stored_figures: Mapping[str, Any]
    """Provenance and answers as the file has them: their records may have other fields today."""
    curves: Mapping[str, ValidationCurve]
    """Run → its validation losses; runs without any are left out."""


def read_files(folder: Path) -> dict[str, bytes]:
    """Return every file of the folder by its name. Raises `BundleError` for a link, a folder, a file that belongs to no
    bundle or is larger than any such file, and for a file that is missing."""
    files = {}
    try:
        for path in sorted(folder.iterdir()):
            status = path.lstat()
            if path.name not in MOST_BYTES or not stat.S_ISREG(status.st_mode):
                raise BundleError("files", f"{path.name} belongs to no bundle, or is not a plain file")
            if status.st_size > MOST_BYTES[path.name]:
                raise BundleError("files", f"{path.name} is larger than any such file")
            files[path.name] = path.read_bytes()
    except OSError as error:
        raise BundleError("files", f"{error.filename} cannot be read: {error.strerror}") from error
    if missing := MOST_BYTES.keys() - files.keys():
        raise BundleError("files", f"{min(missing)} is missing")
    return files


def read_bundle(files: Mapping[str, bytes]) -> Bundle:
    """Return the content. Raises `BundleError` if it is damaged, or its specification has another hash."""
    try:
        fields = from_json(files[DOCUMENT], allow_inf_nan=False)
        recorded = {name: fields[name] for name in ("provenance", "experiment", "runs")}
        document = read_stored(ExperimentDocument, json.dumps({**recorded, "comparison": None}))
    except ValidationError as error:
        raise BundleError("schema", f"{DOCUMENT}: {first_fault(error)}") from error
    except (ValueError, TypeError, KeyError) as error:
        raise BundleError("schema", f"{DOCUMENT} is not JSON of an experiment") from error
    if hashlib.sha256(canonical_json(fields["experiment"]["spec"])).hexdigest() != document.experiment.spec_hash:
        raise BundleError(
            "specification",
            "it has another hash than the one that the experiment is known by; of an experiment of an earlier version, "
            "publish a clone",
        )
    return Bundle(
        document=document,
        stored_figures={name: fields.get(name) for name in ("provenance", *ANSWERS)},
        curves=_read_curves(files[POINTS]),
    )


def raw_files(document: ExperimentDocument, points: bytes) -> dict[str, bytes]:
    """Return all files but the key and the statement."""
    fields = document.model_dump(mode="json")
    fields |= {name: without_sentences(fields[name]) for name in ANSWERS}
    return {DOCUMENT: to_json(fields, indent=1) + b"\n", POINTS: points}


def without_sentences(value: Any) -> Any:
    """Return an answer with figures alone: its texts are empty, but for the one-word verdicts of trials."""
    if isinstance(value, list):
        return [without_sentences(item) for item in value]
    if not isinstance(value, dict):
        return value
    figures = {name: without_sentences(item) for name, item in value.items()}
    for name in SENTENCES & figures.keys():
        if isinstance(figures[name], list):
            figures[name] = []
        elif isinstance(figures[name], str) and " " in figures[name]:
            figures[name] = ""
    return figures


def _read_curves(content: bytes) -> dict[str, ValidationCurve]:
    from pyarrow import ArrowException, compute, parquet  # not installed with a client, which publishes

    try:
        # A long id in every row of a small file stays one text in memory.
        file = parquet.ParquetFile(io.BytesIO(content), read_dictionary=["run_id"])
        groups = [file.metadata.row_group(group) for group in range(file.metadata.num_row_groups)]
        unpacked_bytes = sum(group.total_byte_size for group in groups)
        if file.metadata.num_rows > MOST_POINTS or unpacked_bytes > MOST_UNPACKED_BYTES:
            raise BundleError("schema", f"{POINTS} is larger, unpacked, than any such file")
        table = file.read(["run_id", "step", "val_loss"]).unify_dictionaries().drop_null()
        table = table.filter(compute.is_finite(table["val_loss"]))
        columns = [("step", "list"), ("val_loss", "list")]
        curves = table.group_by("run_id", use_threads=False).aggregate(columns).to_pylist()
        return {
            str(row["run_id"]): ValidationCurve(steps=tuple(row["step_list"]), losses=tuple(row["val_loss_list"]))
            for row in curves
        }
    except (ArrowException, OSError, ValueError, KeyError, MemoryError) as error:
        raise BundleError("schema", f"{POINTS} is no Parquet file of points: {type(error).__name__}") from error
