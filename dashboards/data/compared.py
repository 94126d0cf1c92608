"""Runs of either origin beside each other: what tells them apart. An external run never looks like a measured one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from dashboards.text import formats
from dashboards.text.words import candidate_title, run_title
from orchestrator.export.cells import leaves
from orchestrator.external_runs import ExternalRun
from orchestrator.records import RunRecord
from orchestrator.run_table.fields import EXTERNAL
from orchestrator.specs.differences import external_fields, spec_fields

OWN_FIELDS = ("candidate", "optimizer", "lr", "seed", "model")


@dataclass(frozen=True, kw_only=True)
class ComparedRun:
    """A run that was measured here, or one that another loop told of."""

    record: RunRecord | ExternalRun
    experiment: str
    """The name of its experiment."""

    @property
    def measured(self) -> RunRecord | None:
        """The record of a run that was measured here."""
        return self.record if isinstance(self.record, RunRecord) else None

    @property
    def external(self) -> ExternalRun | None:
        """The record of an external run."""
        return self.record if isinstance(self.record, ExternalRun) else None

    @property
    def key(self) -> str:
        """What addresses call it: the id, of an external run behind `external:`."""
        return self.record.id if self.measured else EXTERNAL + self.record.id

    @property
    def page(self) -> str:
        """The address of its page; an external run's is that of its experiment."""
        return f"/external/{self.record.experiment_id}" if self.external else f"/runs/{self.record.id}"

    @property
    def candidate(self) -> tuple[str, str]:
        """(candidate, optimizer). Of external runs the candidate is all that is known."""
        one = self.record
        return one.candidate, one.optimizer if isinstance(one, RunRecord) else one.candidate

    def candidate_title(self) -> str:
        """What its candidate is called; what another loop calls one is not translated."""
        return candidate_title(*self.candidate) if self.measured else self.record.candidate

    def settings(self) -> str:
        """Learning rate and seed."""
        seed = formats.UNKNOWN if self.record.seed is None else self.record.seed
        return f"lr {formats.rate(self.record.lr)}, seed {seed}"

    def title(self) -> str:
        """What tells it from its neighbours, its origin too."""
        return run_title(self.record)

    def state(self) -> str:
        """What became of it."""
        return self.record.state_word() if isinstance(self.record, RunRecord) else self.record.state.value

    def specification(self) -> Mapping[str, JsonValue] | None:
        """What it was told to do, field by field; None where that cannot be read."""
        if isinstance(self.record, ExternalRun):
            return external_fields(self.record)
        return spec_fields(self.record.spec) if self.record.spec else None


def group_fields(runs: Sequence[RunRecord | ExternalRun]) -> tuple[str, ...]:
    """The fields in which a few runs differ, by which they can be averaged."""
    every = [fields_of(run) for run in runs]
    names = dict.fromkeys(name for one in every for name in one)
    return tuple(name for name in names if len({one.get(name) for one in every}) > 1)


def fields_of(run: RunRecord | ExternalRun) -> dict[str, str]:
    """What is known of a run, field by field, as texts: of its specification, or of the configuration that it told."""
    if isinstance(run, ExternalRun):
        seed = formats.UNKNOWN if run.seed is None else str(run.seed)
        lr = formats.UNKNOWN if run.lr is None else formats.option_value(run.lr)
        own = {"candidate": run.candidate, "lr": lr, "seed": seed, "workload": run.workload or "none"}
        return own | {name: formats.option_value(value) for name, value in leaves(run.config)}
    spec = run.spec.model_dump(mode="json") if run.spec else {}
    own = {name: str(getattr(run, name)) for name in OWN_FIELDS} | {"lr": formats.option_value(run.lr)}
    return own | {name: formats.option_value(value) for name, value in leaves(spec)}
