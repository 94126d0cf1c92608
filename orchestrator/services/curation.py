"""Curation: what people do with experiments beside running them: labels, a note, delete, restore, clone.

submit ─► … ─► ended ─► annotate ─► delete ─► restore, or removed for good (`orchestrator/retention/removal.py`)
                  └───► clone ─► a new experiment with the same specification
"""

import json
from collections.abc import Sequence

from pydantic import ValidationError

from orchestrator.annotations import AnnotationChange
from orchestrator.errors import ConflictError
from orchestrator.kinds import registry
from orchestrator.records import AnyExperiment, ExperimentRecord, Submission
from orchestrator.services.submission import SubmissionVerbs
from orchestrator.store import annotations, reads
from orchestrator.store.admin import deletion
from orchestrator.store.database import Database

DAY_SECONDS = 86_400.0
UNDO_DAYS = 7.0
MAX_PAGE = 1_000
"""No page is longer, whatever is asked for."""


class CurationVerbs(SubmissionVerbs):
    """The verbs of this file, for `Bench`, which brings the database.

    What a change answers with is read in its own transaction: read after it, the experiment may be gone already.
    """

    _database: Database
    undo_days = UNDO_DAYS
    """How long a deleted experiment can be restored."""

    def experiments(
        self, *, limit: int = 50, before: str | None = None, labels: Sequence[str] = (), deleted: bool = False
    ) -> tuple[AnyExperiment, ...]:
        """A page of experiments, newest first; `before` is the last experiment of the page before it. Those that have
        all of `labels`; those that were deleted and can be restored, instead of the others."""
        with self._database.reading() as connection:
            return reads.experiment_page(connection, max(1, min(limit, MAX_PAGE)), before, labels, deleted=deleted)

    def experiment_of_key(self, key: str) -> ExperimentRecord | None:
        """The newest experiment that was submitted under that idempotency key, or under `<key>-…`; None if none was."""
        with self._database.reading() as connection:
            return reads.experiment_of_key(connection, key)

    def deleted_experiment(self, experiment_id: str) -> AnyExperiment:
        """One experiment, deleted or not."""
        with self._database.reading() as connection:
            return reads.any_experiment(connection, experiment_id, deleted_too=True)

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

    def delete_experiment(self, experiment_id: str) -> AnyExperiment:
        """Delete an experiment of which every run has ended, else `ConflictError`; repeating it changes nothing."""
        with self._database.writing() as connection:
            deletion.delete(self._database, connection, experiment_id, undo_seconds=self.undo_days * DAY_SECONDS)
            return reads.any_experiment(connection, experiment_id, deleted_too=True)

    def restore_experiment(self, experiment_id: str) -> AnyExperiment:
        """Undo a deletion; raises `ConflictError` where the time for that has passed. Repeating it changes nothing."""
        with self._database.writing() as connection:
            deletion.restore(self._database, connection, experiment_id)
            return reads.any_experiment(connection, experiment_id)

    def clone_experiment(
        self, experiment_id: str, name: str | None = None, key: str | None = None, *, by: str | None = None
    ) -> Submission:
        """Submit the same specification again, under another name if one is given; the new experiment says what it is
        a clone of. Raises `ConflictError` where the specification would be refused today."""
        source = self.experiment(experiment_id)
        fields = source.spec.model_dump(mode="json") | ({} if name is None else {"name": name})
        try:
            spec = registry.read_spec(json.dumps(fields))
        except ValidationError as error:
            fault = error.errors(include_url=False, include_context=False)[0]
            place = ".".join(map(str, fault["loc"]))
            raise ConflictError(
                f"a clone of experiment {source.id} would be refused today: {place}: {fault['msg']}; change a copy of "
                "its specification, and submit that"
            ) from error
        return self.submit(spec, key, by=by, cloned_from=source.id)
