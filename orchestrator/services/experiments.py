"""`Experiments`: what people do with experiments: submit, look, steer, and keep them in order.

submit ─► … ─► ended ─► annotate ─► delete ─► restore, or removed for good (`orchestrator/retention/removal.py`)
   └─► apply: cancel, pause, resume, retry          └─► clone ─► a new experiment with the same specification
"""

import json
from collections.abc import Callable, Sequence
from contextlib import suppress

from pydantic import ValidationError

from orchestrator.annotations import AnnotationChange
from orchestrator.errors import ConflictError, DamagedError, DeletedError, MissingDataError, NotFoundError
from orchestrator.external_runs import ExternalExperiment
from orchestrator.jobs import LeasePolicy, RunAction
from orchestrator.kinds import registry
from orchestrator.kinds.comparison import ComparisonSpec, TunedExperiment
from orchestrator.kinds.registry import ExperimentSpec
from orchestrator.records import AnyExperiment, DamagedExperiment, ExperimentRecord, SubmissionReceipt
from orchestrator.services.specifications import Specifications
from orchestrator.specs.preview import Preview
from orchestrator.store import annotations, reads
from orchestrator.store.admin import deletion
from orchestrator.store.database import DAY_SECONDS, Database
from orchestrator.store.external_runs import ExternalRuns
from orchestrator.store.queue import run_actions, submission
from worker.schema import first_fault
from worker.words import pluralize


class Experiments:
    """The experiments of one database. Thread-safe; every call is one transaction.

    Every method may raise `StoreError`; those that name an experiment raise `NotFoundError` if it does not exist.
    What a change answers with is read in its own transaction: read after it, the experiment may be gone already.
    """

    def __init__(
        self,
        database: Database,
        policy: LeasePolicy,
        specifications: Specifications,
        comparison_at_judged_settings: Callable[[str], ComparisonSpec],
        external_runs: ExternalRuns,
        *,
        undo_days: float = 7.0,
        most_waiting: int | None = None,
    ) -> None:
        self._database, self._policy = database, policy
        self._external_runs = external_runs
        self._specifications, self._comparison_at_judged_settings = specifications, comparison_at_judged_settings
        self.undo_days = undo_days
        """How long a deleted experiment can be restored."""
        self.most_waiting = most_waiting
        """Runs of one key that may wait to be begun when it submits more; None means no limit."""

    def submit(
        self,
        spec: ExperimentSpec,
        key: str | None = None,
        *,
        by: str | None = None,
        cloned_from: str | None = None,
    ) -> SubmissionReceipt:
        """Queue an experiment durably. The same key and specification give the same experiment again; the same key
        with another specification raises `IdempotencyError`; data that only a person can prepare must be there, else
        `MissingDataError`. What its runs use is charged to the quota of the key `by`."""
        if missing := self._specifications.missing_data(spec):
            raise MissingDataError(" ".join(missing))
        return submission.submit(
            self._database, spec, key=key, by=by, cloned_from=cloned_from, most_waiting=self.most_waiting
        )

    def get(self, experiment_id: str) -> ExperimentRecord:
        """Return an experiment with its counts and progress; raises `DamagedError` if it cannot be read."""
        with self._database.reading() as connection:
            return reads.experiment(connection, experiment_id)

    def get_any(self, experiment_id: str, *, deleted_too: bool = False) -> AnyExperiment:
        """Return an experiment with its counts and progress, damaged or not, and if asked for deleted or not."""
        with self._database.reading() as connection:
            return reads.any_experiment(connection, experiment_id, deleted_too=deleted_too)

    def find(self, experiment_id: str) -> ExperimentRecord | ExternalExperiment:
        """Return an experiment of any source: by its id, or an external one by its name, too; raises `DamagedError` if
        it cannot be read."""
        try:
            experiment = self.get_any(experiment_id)
        except NotFoundError as error:
            if not isinstance(error, DeletedError):
                with suppress(NotFoundError):
                    return self._external_runs.experiment(experiment_id)
            raise
        if isinstance(experiment, DamagedExperiment):
            raise DamagedError(experiment.damaged)
        return experiment

    def find_by_key(self, key: str) -> ExperimentRecord | None:
        """Return the newest experiment that was submitted under that idempotency key, or under `<key>-…`; None if none
        was."""
        with self._database.reading() as connection:
            return reads.experiment_of_key(connection, key)

    def page(
        self, *, limit: int = 50, before: str | None = None, labels: Sequence[str] = (), deleted: bool = False
    ) -> tuple[AnyExperiment, ...]:
        """Return a page of experiments, newest first; `before` is the last experiment of the page before it. Those that
        have all of `labels`; those that were deleted and can be restored, instead of the others."""
        with self._database.reading() as connection:
            return reads.experiment_page(connection, limit, before, labels, deleted=deleted)

    def version(self, experiment_id: str) -> int:
        """Return a number that grows with every visible change of the experiment: a new state, points, progress.
        Cheap."""
        with self._database.reading() as connection:
            return reads.experiment_version(connection, experiment_id)

    def apply(self, experiment_id: str, action: RunAction) -> AnyExperiment:
        """Cancel, pause, resume or retry every run of an experiment whose state allows it; repeating it changes
        nothing."""
        return run_actions.apply_to_experiment(self._database, self._policy, experiment_id, action)

    def annotate(
        self,
        experiment_id: str,
        change: AnnotationChange,
        *,
        revision: int | None = None,
        by: str | None = None,
    ) -> AnyExperiment:
        """Change labels and note; with `revision` only if nobody has since, else `ChangedMeanwhileError`. The key `by`
        is kept beside a note."""
        with self._database.writing() as connection:
            annotations.change(self._database, connection, experiment_id, change, revision=revision, by=by)
            return reads.any_experiment(connection, experiment_id)

    def delete(self, experiment_id: str) -> AnyExperiment:
        """Delete an experiment of which every run has ended, else `ConflictError`; repeating it changes nothing."""
        with self._database.writing() as connection:
            deletion.delete(self._database, connection, experiment_id, undo_seconds=self.undo_days * DAY_SECONDS)
            return reads.any_experiment(connection, experiment_id, deleted_too=True)

    def restore(self, experiment_id: str) -> AnyExperiment:
        """Undo a deletion; raises `ConflictError` if the time for that has passed. Repeating it changes nothing."""
        with self._database.writing() as connection:
            deletion.restore(self._database, connection, experiment_id)
            return reads.any_experiment(connection, experiment_id)

    def clone(
        self,
        experiment_id: str,
        name: str | None = None,
        key: str | None = None,
        *,
        fresh_seeds: int | None = None,
        keep_rates: bool = False,
        by: str | None = None,
    ) -> SubmissionReceipt:
        """Submit the same specification again, under another name if one is given, and over so many `fresh_seeds`: the
        next numbers, on which neither it nor another clone was tuned or judged; `keep_rates`: of each candidate only
        what it was judged at, without another tuning. The new experiment says what it is a clone of. Raises
        `ConflictError` if the specification would be refused today."""
        spec = self._clone_spec(experiment_id, name, key, fresh_seeds=fresh_seeds, keep_rates=keep_rates)
        return self.submit(spec, key, by=by, cloned_from=experiment_id)

    def preview_clone(self, experiment_id: str, *, fresh_seeds: int | None, keep_rates: bool) -> Preview:
        """Return the preview of such a clone. Raises `ConflictError` as `clone` does."""
        spec = self._clone_spec(experiment_id, None, None, fresh_seeds=fresh_seeds, keep_rates=keep_rates)
        return self._specifications.preview(spec.model_dump(mode="json"))

    def _clone_spec(
        self, experiment_id: str, name: str | None, key: str | None, *, fresh_seeds: int | None, keep_rates: bool
    ) -> ExperimentSpec:
        source = self.get(experiment_id)
        spec = source.spec
        if keep_rates:
            if fresh_seeds is None:
                raise ConflictError("keep_rates needs fresh_seeds: on its own seeds an experiment's answer is known")
            spec = self._comparison_at_judged_settings(source.id)
        fields = spec.model_dump(mode="json") | ({} if name is None else {"name": name})
        if fresh_seeds is not None:
            if source.spec.has_driver:
                raise ConflictError(f"experiment {source.id} is a {source.spec.title}, whose trials are not judged")
            first = 1 + self._last_seed(source.id, key)
            fields["seeds"] = list(range(first, first + fresh_seeds))
        try:
            return registry.read_spec(json.dumps(fields))
        except ValidationError as error:
            clone, way_out = f"a clone of experiment {source.id}", "change a copy of its specification, and submit that"
            if fresh_seeds is not None:
                clone += f" on {pluralize(fresh_seeds, 'fresh seed')}"
                way_out = f"ask for another number, or {way_out}"
            raise ConflictError(f"{clone} would be refused today: {first_fault(error)}; {way_out}") from error

    def _last_seed(self, experiment_id: str, key: str | None) -> int:
        """Return the largest one that an experiment, what it was cloned from or any clone of these was tuned or judged
        on."""
        with self._database.reading() as connection:
            family = reads.clone_family(connection, experiment_id, key)
        grids = [spec for spec in family if isinstance(spec, TunedExperiment)]
        return max(
            seed for seeded in (*grids, *(grid.tuning for grid in grids if grid.tuning)) for seed in seeded.seeds
        )
