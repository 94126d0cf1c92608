"""What a bundle is made of: its files, read strictly, and the figures that follow from the raw ones. Schema 2.

    document.json          raw: specification, state, every run with its result; and the figures that follow
    attempts.json          raw: every execution of every run
    points.parquet         raw: every point of every run, as `adapm-bench export` writes it
    signer.pem             the public key of who published it
    statement.dsse.json    the signed statement: the digest of each file above (`signing.py`)

Records are those of REST without their sentences, in one form of JSON alone: what is written otherwise, or has a field
more, is refused. Schema 1 had sentences, tables of them (`comparison.{csv,md,tex}`) and the answers of an earlier
procedure: of it everything is read but the answers.
"""

import io
import json
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from pydantic import BaseModel, TypeAdapter, ValidationError

from orchestrator.analysis.comparison import ValidationCurve
from orchestrator.columns import FIELDS, STEP, WHOLE_NUMBERS, Columns
from orchestrator.errors import NotFoundError
from orchestrator.export.document import ExperimentDocument, document
from orchestrator.records import AttemptRecord, ExperimentRecord, RunRecord
from orchestrator.services.analysis import NO_CURVE, Analysis, ExperimentSource, validation_curve
from orchestrator.specs.footprints import Footprints
from worker.schema import first_fault, read_stored, trust_stored_names

SCHEMA_VERSION: Final = 2
EARLIER_SCHEMA: Final = 1
DOCUMENT, ATTEMPTS, POINTS, SIGNER, STATEMENT = (
    "document.json",
    "attempts.json",
    "points.parquet",
    "signer.pem",
    "statement.dsse.json",
)
EARLIER_TABLES: Final = ("comparison.tex", "comparison.md", "comparison.csv")
"""Of schema 1: signed, and not read."""
ANSWERS: Final = ("comparison", "sweep", "cells", "fit")
"""Fields of a document that follow from the others."""
SENTENCES: Final = frozenset({"verdict", "notes", "no_law", "peak_memory_note"})
"""Fields of answers that are made of their figures last, and may be worded otherwise tomorrow."""
OLD_FIELDS: Final = frozenset({"unequal_grids", "kept_rates", "extend_grid"})
"""Of specifications of an earlier procedure, which today's do not have."""
MOST_BYTES: Final = {DOCUMENT: 1 << 30, ATTEMPTS: 1 << 28, POINTS: 1 << 32, SIGNER: 1 << 12, STATEMENT: 1 << 20}
"""Larger files are not read; of any other as much as of a statement."""
MOST_POINTS: Final = 10_000_000
"""In one bundle: a Parquet file may claim any number. With all columns these take 2 GB."""
MOST_UNPACKED_BYTES: Final = 1 << 32
LONGEST_KEY_BYTES: Final = 1000
ATTEMPT_LIST: Final = TypeAdapter(tuple[AttemptRecord, ...])
KEYS: Final = ("run_id", "candidate", "optimizer", "run_lr", "seed")
"""What each row of points repeats of its run."""
LATER_FIELDS: Final = frozenset(
    {"cpu_cores", "host_cpu_utilization", "gpu_utilization", "gpu_memory_bytes", "gpu_power_watts"}
)
"""Columns that bundles of earlier versions have none of; no check is about them."""


class BundleError(Exception):
    """A bundle cannot be believed: the name of the check that it fails, and why."""

    def __init__(self, check: str, reason: str) -> None:
        super().__init__(f"{check}: {reason}")
        self.check, self.reason = check, reason


@dataclass(frozen=True, kw_only=True)
class Bundle:
    """The raw content of a bundle, read but not yet checked."""

    document: ExperimentDocument
    attempts: tuple[AttemptRecord, ...]
    points: Mapping[str, Columns]
    """Run → its series; runs without points are left out."""
    point_keys: Mapping[str, tuple[Any, ...]]
    """Run → `KEYS` as its rows have them."""
    spec_fields: Mapping[str, Any]
    """The specification as it stands in the file: what its hash is of."""
    is_earlier: bool = False
    """Whether it is of schema 1, whose answers are of an earlier procedure."""

    @property
    def experiment(self) -> ExperimentRecord:
        """The published experiment."""
        return self.document.experiment

    @property
    def runs(self) -> tuple[RunRecord, ...]:
        """All of its runs."""
        return self.document.runs


def read_files(folder: Path) -> dict[str, bytes]:
    """Every file of the folder by its name, and nothing else that may lie there."""
    try:
        entries = sorted(folder.iterdir())
    except OSError as error:
        raise BundleError("files", f"{folder} cannot be read: {error.strerror}") from error
    found = {}
    for path in entries:
        try:
            kind = path.lstat()
            if not stat.S_ISREG(kind.st_mode):
                raise BundleError("files", f"{path.name} is no plain file")
            if path.name not in (*MOST_BYTES, *EARLIER_TABLES):
                raise BundleError("files", f"{path.name} belongs to no bundle")
            if kind.st_size > MOST_BYTES.get(path.name, MOST_BYTES[STATEMENT]):
                raise BundleError("files", f"{path.name} is larger than any such file")
            found[path.name] = path.read_bytes()
        except OSError as error:
            raise BundleError("files", f"{path.name} cannot be read: {error.strerror}") from error
    for name in MOST_BYTES:
        if name not in found:
            raise BundleError("files", f"{name} is missing")
    return found


def read_bundle(files: Mapping[str, bytes], schema: int = SCHEMA_VERSION) -> Bundle:
    """The raw content. Raises `BundleError` for anything that `raw_files` would not have written."""
    is_earlier = schema == EARLIER_SCHEMA
    try:
        read = _read_earlier_document if is_earlier else ExperimentDocument.model_validate_json
        of_experiment = read(files[DOCUMENT])
        attempts = ATTEMPT_LIST.validate_json(files[ATTEMPTS])
    except ValidationError as error:
        raise BundleError("schema", f"{error.title}, {first_fault(error)}") from error
    for name, record in ((DOCUMENT, of_experiment), (ATTEMPTS, attempts)):
        if not is_earlier and record_bytes(record) != files[name]:
            raise BundleError("schema", f"{name} is not written as its records are: something in it is not read")
    points, keys = _read_points(files[POINTS])
    return Bundle(
        document=of_experiment,
        attempts=attempts,
        points=points,
        point_keys=keys,
        spec_fields=json.loads(files[DOCUMENT])["experiment"]["spec"],
        is_earlier=is_earlier,
    )


def _read_earlier_document(content: bytes) -> ExperimentDocument:
    """The raw part of a document of schema 1, without the answers, which today's records cannot hold."""
    try:
        fields = json.loads(content, parse_constant=_refuse_constant)
        raw = {name: value for name, value in fields.items() if name not in ANSWERS}
        found: ExperimentDocument = read_stored(ExperimentDocument, json.dumps({**raw, "comparison": None}))
    except (ValueError, AttributeError, RecursionError) as error:
        if isinstance(error, ValidationError):
            raise
        raise BundleError("schema", f"{DOCUMENT} is no JSON of a document") from error
    if not _is_read(raw, found.model_dump(mode="json")):
        raise BundleError("schema", f"{DOCUMENT} is not written as its records are: something in it is not read")
    return found


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no number")


def _is_read(written: object, read: object) -> bool:
    """Whether all of what is written was read; records have fields more today."""
    match written, read:
        case dict(), dict():
            return all(
                name in OLD_FIELDS or (name in read and _is_read(value, read[name])) for name, value in written.items()
            )
        case list(), list():
            return len(written) == len(read) and all(map(_is_read, written, read))
    return written == read


def raw_files(of_experiment: ExperimentDocument, attempts: Sequence[AttemptRecord], points: bytes) -> dict[str, bytes]:
    """All files but the key and the statement."""
    return {
        DOCUMENT: record_bytes(without_sentences(of_experiment)),
        ATTEMPTS: record_bytes(tuple(attempts)),
        POINTS: points,
    }


def without_sentences(of_experiment: ExperimentDocument) -> ExperimentDocument:
    """The same with figures alone in its answers."""
    fields = of_experiment.model_dump(mode="json")
    with trust_stored_names():
        return ExperimentDocument.model_validate_json(
            json.dumps(fields | {name: _without_sentences(fields[name]) for name in ANSWERS})
        )


def _without_sentences(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            name: _without_sentences(held) if name not in SENTENCES else _emptied(held) for name, held in value.items()
        }
    return [*map(_without_sentences, value)] if isinstance(value, list) else value


def record_bytes(record: BaseModel | tuple[AttemptRecord, ...]) -> bytes:
    """The one form of JSON that records have in a bundle."""
    if isinstance(record, BaseModel):
        return record.model_dump_json(indent=1).encode() + b"\n"
    return ATTEMPT_LIST.dump_json(record, indent=1) + b"\n"


def _emptied(sentences: Any) -> Any:
    """Of a text nothing, but for a trial's verdict, which is one word; of several none."""
    if isinstance(sentences, str):
        return "" if " " in sentences else sentences
    return [] if isinstance(sentences, list) else sentences


class BundleSource(ExperimentSource):
    """The experiment of a bundle, as `Analysis` reads those of a database."""

    def __init__(self, bundle: Bundle) -> None:
        self._experiment, self._runs, self._points = bundle.experiment, bundle.runs, bundle.points

    def read(self, experiment_id: str) -> tuple[ExperimentRecord, tuple[RunRecord, ...]]:
        """The only one."""
        if experiment_id != self._experiment.id:
            raise NotFoundError(f"the bundle is of {self._experiment.id}, not of {experiment_id!r}")
        return self._experiment, self._runs

    def curves(self, run_ids: Sequence[str]) -> dict[str, ValidationCurve]:
        """From the points."""
        points = self._points
        return {each: validation_curve(points[each]) if each in points else NO_CURVE for each in run_ids}


def derive_document(bundle: Bundle) -> ExperimentDocument:
    """Derives the whole answer from the raw content alone; only its date is that of the stored answer."""
    said = bundle.document.provenance
    analysis = Analysis(
        BundleSource(bundle), Footprints(Path("/nonexistent"))
    )  # nothing is predicted, so nothing is counted
    derived = document(bundle.experiment, bundle.runs, analysis, said.bench_version)
    return derived.model_copy(
        update={"provenance": derived.provenance.model_copy(update={"written_at": said.written_at})}
    )


def _read_points(content: bytes) -> tuple[dict[str, Columns], dict[str, tuple[Any, ...]]]:
    import pyarrow as pa  # a quarter of a second, for verbs that read no bundle
    import pyarrow.compute
    import pyarrow.parquet

    try:
        _check_columns(pyarrow.parquet.ParquetFile(io.BytesIO(content)))
        # What each row repeats of its run stays one text a run: a small file may claim a long one in every row.
        table = pyarrow.parquet.ParquetFile(io.BytesIO(content), read_dictionary=KEYS[:3]).read()
        for name in KEYS[:3]:
            texts = [chunk.dictionary for chunk in table[name].chunks]
            lengths = (pyarrow.compute.max(pyarrow.compute.binary_length(each)) for each in texts)
            if any((length.as_py() or 0) > LONGEST_KEY_BYTES for length in lengths):
                raise BundleError("schema", f"{POINTS}: {name} has a text that no run has")
            table = table.set_column(table.column_names.index(name), name, table[name].cast(pa.string()))
    except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise BundleError("schema", f"{POINTS} is no Parquet file of points: {reason}") from error
    for name in (*KEYS, STEP):
        if table[name].null_count:
            raise BundleError("schema", f"{POINTS}: a row has no {name}")
    unknown = np.full(len(table), np.nan)
    arrays = {name: _numbers(name, table[name]) if name in table.column_names else unknown for name in FIELDS}
    by_run = pyarrow.compute.run_end_encode(table["run_id"].combine_chunks())
    ends = by_run.run_ends.to_pylist()
    points: dict[str, Columns] = {}
    of_run: dict[str, tuple[Any, ...]] = {}
    for run_id, start, end in zip(by_run.values.to_pylist(), [0, *ends], ends, strict=False):
        if run_id in points:
            raise BundleError("schema", f"{POINTS}: the rows of {run_id} do not stand together")
        named = [table[name].slice(start, end - start).unique().to_pylist() for name in KEYS]
        if any(len(values) > 1 for values in named):
            raise BundleError("points", f"the rows of {run_id} do not name one run")
        of_run[run_id] = tuple(values[0] for values in named)
        taken = {name: array[start:end] for name, array in arrays.items()}
        points[run_id] = Columns(step=taken.pop(STEP), values=taken)
    return points, of_run


def _check_columns(file: Any) -> None:
    """Before a row is read: which columns there are, of which types and how large. Raises `BundleError`."""
    import pyarrow as pa  # as above

    schema, about = file.schema_arrow, file.metadata
    if schema.names not in ([*KEYS, *FIELDS], [*KEYS, *(name for name in FIELDS if name not in LATER_FIELDS)]):
        raise BundleError("schema", f"{POINTS} has the columns {', '.join(schema.names)}")
    for field in schema:
        whole = field.name == "seed" or field.name in WHOLE_NUMBERS
        right = pa.string() if field.name in KEYS[:3] else pa.int64() if whole else pa.float64()
        if field.type != right:
            raise BundleError("schema", f"{POINTS}: {field.name} is {field.type}, not {right}")
    if schema.metadata:
        raise BundleError("schema", f"{POINTS} holds more than its columns: {min(schema.metadata)!r}")
    if about.num_rows > MOST_POINTS:
        raise BundleError("schema", f"{POINTS} has more than {MOST_POINTS:,} rows")
    if sum(about.row_group(group).total_byte_size for group in range(about.num_row_groups)) > MOST_UNPACKED_BYTES:
        raise BundleError("schema", f"{POINTS} is larger, unpacked, than any such file")


def _numbers(name: str, column: Any) -> Any:
    """As float64 with NaN for null; a value that is no finite number is none that the bench writes."""
    import pyarrow.compute as pc  # as above

    finite = pc.is_finite(column.drop_null())
    if not pc.all(finite, min_count=0).as_py():
        raise BundleError("schema", f"{POINTS}: {name} has a value that is no finite number")
    found = column.to_numpy().astype(np.float64)
    return np.asarray(found)
