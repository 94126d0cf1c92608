"""Answers of the service that are not records by themselves: pages of records, and the catalog's entries."""

from collections.abc import Iterable, Sequence
from typing import Generic, TypeVar

from pydantic import BaseModel, ConfigDict

from optim.catalog import OptimizerEntry, Scalar
from orchestrator.records import Progress as ExperimentProgress
from orchestrator.records import StateCounts
from orchestrator.run_table.fields import RunField, TableRow, Value
from orchestrator.specs.faults import Fault
from worker.catalog.datasets import DatasetEntry
from worker.catalog.presets import ModelPreset
from worker.data.documents import Split
from worker.data.manifest import Manifest
from worker.records.result import Record


class Problem(BaseModel):
    """An error as RFC 9457 describes it, `application/problem+json`."""

    model_config = ConfigDict(frozen=True, extra="allow")

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    errors: tuple[Fault, ...] = ()
    """Every fault of the request at once; empty if the request as such was fine."""


Item = TypeVar("Item")


class Page(Record, Generic[Item]):
    """A page of the requested records, in order."""

    items: tuple[Item, ...]
    next: str | None = None
    """The cursor to send as `before`, `after` or `after_step` to read on; null on the last page."""


class RunTableRow(Record):
    """A run in the table of all runs, with the requested fields."""

    id: str
    is_external: bool
    """Whether another loop or tool logged it; `/v1/external-runs` has such runs."""
    experiment_id: str
    values: dict[str, Value]
    """The values by field name; null if the run lacks it."""


class ExperimentChange(Record):
    """An event of an experiment's stream."""

    experiment_id: str
    version: int
    """Grows with every visible change of the experiment."""
    done: bool
    """Whether no run can move any more."""
    counts: StateCounts
    progress: ExperimentProgress


class Health(Record):
    """The service answers and reaches its database."""

    status: str = "ok"
    hindrance: str | None = None
    """The reason why no waiting run starts now, such as a full disk; null if there is none."""


class OptionInfo(Record):
    """An option of an optimizer."""

    name: str
    kind: str
    default: Scalar
    allowed: str
    """The allowed values in words."""
    meaning: str


class OptimizerInfo(Record):
    """An optimizer of the catalog."""

    name: str
    title: str
    summary: str
    paper: str
    licence: str
    learning_rate: float
    """Centre of the learning-rate grid."""
    options: tuple[OptionInfo, ...]


class ModelInfo(Record):
    """A model of the catalog."""

    name: str
    family: str
    layers: int
    heads: int
    hidden_size: int
    max_positions: int
    vocabulary_size: int
    source: str


class PreparedInfo(Record):
    """A dataset as it is prepared on the service's machine."""

    tokenizer: str
    vocabulary_size: int
    training_tokens: int
    validation_tokens: int
    data_hash: str


class DatasetInfo(Record):
    """A dataset of the catalog, or an own one that is prepared on the service's machine."""

    name: str
    summary: str
    licence: str
    prepared: tuple[PreparedInfo, ...] = ()
    """The prepared texts, one for each tokenizer; the runs that need conversations prepare them."""


def run_row(row: TableRow, columns: Sequence[RunField]) -> RunTableRow:
    """Return a row of the table as it is served."""
    values = dict(zip((field.name for field in columns), row.values, strict=True))
    return RunTableRow(id=row.id, is_external=row.is_external, experiment_id=row.experiment_id, values=values)


def optimizer_info(entry: OptimizerEntry) -> OptimizerInfo:
    """Return a catalog entry as it is served."""
    options = tuple(
        OptionInfo(name=o.name, kind=o.kind, default=o.default, allowed=o.allowed_values(), meaning=o.meaning)
        for o in entry.options
    )
    others = OptimizerInfo.model_fields.keys() - {"options"}
    return OptimizerInfo(options=options, **{name: getattr(entry, name) for name in others})


def model_info(preset: ModelPreset) -> ModelInfo:
    """Return a preset as it is served."""
    return ModelInfo(**{name: getattr(preset, name) for name in ModelInfo.model_fields})


def dataset_infos(entries: Iterable[DatasetEntry], texts: Sequence[Manifest]) -> tuple[DatasetInfo, ...]:
    """Return the catalog, then what is prepared of own data."""
    prepared: dict[str, list[PreparedInfo]] = {}
    for text in texts:
        info = PreparedInfo(
            tokenizer=text.recipe.tokenizer,
            vocabulary_size=text.vocabulary_size,
            training_tokens=text.tokens(Split.TRAIN),
            validation_tokens=text.tokens(Split.VALIDATION),
            data_hash=text.data_hash,
        )
        prepared.setdefault(text.recipe.dataset, []).append(info)
    catalog = {entry.name: (entry.summary, entry.licence) for entry in entries}
    own_datasets = dict.fromkeys(sorted(prepared.keys() - catalog), ("your own files", "yours to know"))
    return tuple(
        DatasetInfo(name=name, summary=summary, licence=licence, prepared=tuple(prepared.get(name, ())))
        for name, (summary, licence) in (catalog | own_datasets).items()
    )
