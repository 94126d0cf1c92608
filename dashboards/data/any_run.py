"""A run of any source, as pages and figures read it: the measured ones, and those that another loop or tool logged.

Every run has a candidate, a setting, a seed, a state, points and their last values. Logged values never look like what
was measured: its source marks it in every figure and table, and no mean and no lowest loss is over both.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from dashboards.data.series import external_metric
from dashboards.text import formats
from dashboards.text.words import candidate_title
from orchestrator.columns import FIELDS
from orchestrator.external_runs import ExternalRun, ExternalState, SourceKind, source_kind
from orchestrator.jobs import TERMINAL
from orchestrator.records import RunRecord
from orchestrator.specs.differences import external_fields, spec_fields

OWN_FIELDS = ("candidate", "optimizer", "lr", "seed", "model")


@dataclass(frozen=True, kw_only=True)
class AnyRun:
    """A run of any source."""

    record: RunRecord | ExternalRun
    experiment: str = ""
    """The name of its experiment, where a page shows it."""

    @property
    def measured(self) -> RunRecord | None:
        """Return the record of a run that was measured here."""
        return self.record if isinstance(self.record, RunRecord) else None

    @property
    def external(self) -> ExternalRun | None:
        """Return the record of an external run."""
        return self.record if isinstance(self.record, ExternalRun) else None

    @property
    def source(self) -> SourceKind:
        """Where the run is from."""
        return "bench" if isinstance(self.record, RunRecord) else source_kind(self.record.source)

    @property
    def key(self) -> str:
        """The run's key in addresses: its id."""
        return self.record.id

    @property
    def page(self) -> str:
        """Return the address of its page; an external run's is that of its experiment."""
        return f"/experiments/{self.record.experiment_id}" if self.external else f"/runs/{self.record.id}"

    @property
    def candidate(self) -> str:
        """The run's candidate."""
        return self.record.candidate

    @property
    def optimizer(self) -> str:
        """Return the optimizer of the run's candidate; of an external run the candidate, because nothing else is
        known."""
        return self.measured.optimizer if self.measured else self.record.candidate

    @property
    def ended(self) -> bool:
        """Return whether no further point will come."""
        if isinstance(self.record, RunRecord):
            return self.record.status in TERMINAL
        return self.record.state is not ExternalState.RUNNING

    def has_metric(self, name: str) -> bool:
        """Return whether points may have it."""
        return name in FIELDS if self.external is None else external_metric(self.external.metrics, name) is not None

    def candidate_title(self) -> str:
        """Return the candidate's name; that of another loop is not translated."""
        return candidate_title(self.candidate, self.optimizer) if self.measured else self.candidate

    def settings(self, separator: str = ", ") -> str:
        """Return learning rate and seed."""
        seed = formats.UNKNOWN if self.record.seed is None else self.record.seed
        return f"lr {formats.rate(self.record.lr)}{separator}seed {seed}"

    def title(self) -> str:
        """Return the text that distinguishes the run from its neighbours, its source too."""
        return f"{self.candidate_title()} · {self.settings(' · ')}" + f" · {self.source}" * (self.source != "bench")

    def state(self) -> str:
        """Return the state of the run."""
        return self.record.state_word() if isinstance(self.record, RunRecord) else self.record.state.value

    def specification(self) -> Mapping[str, JsonValue] | None:
        """Return the specification, field by field; None if it cannot be read."""
        if isinstance(self.record, ExternalRun):
            return external_fields(self.record)
        return spec_fields(self.record.spec) if self.record.spec else None

    def fields(self) -> dict[str, str]:
        """Return the known fields as texts: of the specification, or of the logged configuration."""
        values = {name: getattr(self.record, name, None) for name in OWN_FIELDS} | dict(self.specification() or {})
        return {name: formats.option_value(value) for name, value in values.items() if value is not None}


def group_fields(runs: Sequence[AnyRun]) -> tuple[str, ...]:
    """Return the fields in which a few runs differ, by which they can be averaged."""
    every = [run.fields() for run in runs]
    names = dict.fromkeys(name for fields in every for name in fields)
    return tuple(name for name in names if len({fields.get(name) for fields in every}) > 1)
