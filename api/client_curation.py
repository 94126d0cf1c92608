"""What the client has for keeping experiments in order: labels, a note, delete, restore, clone."""

import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from uuid import uuid4

from api.client_answers import ANY_EXPERIMENT
from api.client_values import segment, several, written
from orchestrator.annotations import AnnotationChange
from orchestrator.records import AnyExperiment, ExperimentRecord, Submission

JSON = {"Content-Type": "application/json"}
CHANGED_MEANWHILE = 412
MOST_TRIES = 10
"""Of adding a label while others edit the same experiment."""


class CurationVerbs(ABC):
    """The verbs of this file; `Client` brings what they ask the service with."""

    @abstractmethod
    def experiment(self, experiment_id: str) -> ExperimentRecord:
        """One experiment with its state."""

    @abstractmethod
    def _asked(self, method: str, path: str, answer: type[Any], *, again: bool, **sent: Any) -> Any:
        """The answer to one request; `again`: it may be repeated when the connection fails."""

    def annotate(
        self, experiment_id: str, change: AnnotationChange | Mapping[str, Any], *, revision: int | None = None
    ) -> AnyExperiment:
        """Change labels and note; what is left out of `change` stays as it is. With the `revision` of the experiment
        as it was read only what nobody has changed since: else it is refused (412)."""
        body = change.model_dump(mode="json", exclude_unset=True) if isinstance(change, AnnotationChange) else change
        headers = JSON if revision is None else {**JSON, "If-Match": f'"{revision}"'}
        path = f"/v1/experiments/{segment(experiment_id)}"
        # Sent again under a revision it could be refused by its own first try.
        changed: AnyExperiment = self._asked(
            "PATCH", path, ANY_EXPERIMENT, again=revision is None, content=written(body), headers=headers
        )
        return changed

    def add_labels(self, experiment_id: str, *labels: str) -> AnyExperiment:
        """Give an experiment these labels, too; nobody else's are lost, whoever edits at the same time."""
        return self._relabelled(experiment_id, lambda had: list(dict.fromkeys([*had, *labels])))

    def remove_labels(self, experiment_id: str, *labels: str) -> AnyExperiment:
        """Take these labels away; one that it does not have changes nothing."""
        gone = {unicodedata.normalize("NFC", label).strip() for label in several(labels, "labels")}
        return self._relabelled(experiment_id, lambda had: [label for label in had if label not in gone])

    def write_note(self, experiment_id: str, text: str | None) -> AnyExperiment:
        """Write an experiment's note, in plain text; None takes it away."""
        return self.annotate(experiment_id, {"note": text})

    def delete_experiment(self, experiment_id: str) -> AnyExperiment:
        """Delete an experiment of which every run has ended; until `undo_until` it can be restored."""
        path = f"/v1/experiments/{segment(experiment_id)}"
        deleted: AnyExperiment = self._asked("DELETE", path, ANY_EXPERIMENT, again=True)
        return deleted

    def restore_experiment(self, experiment_id: str) -> AnyExperiment:
        """Undo a deletion."""
        path = f"/v1/experiments/{segment(experiment_id)}/restore"
        restored: AnyExperiment = self._asked("POST", path, ANY_EXPERIMENT, again=True)
        return restored

    def clone_experiment(self, experiment_id: str, name: str | None = None, key: str | None = None) -> Submission:
        """Submit an experiment's specification again, under another name if one is given; an earlier call with the
        same `key` made it, if the answer says so."""
        path, headers = (
            f"/v1/experiments/{segment(experiment_id)}/clone",
            {**JSON, "Idempotency-Key": key or uuid4().hex},
        )
        made: Submission = self._asked(
            "POST", path, Submission, again=True, content=written({"name": name}), headers=headers
        )
        return made

    def _relabelled(self, experiment_id: str, labels: Callable[[Iterable[str]], list[str]]) -> AnyExperiment:
        from api.client import ClientError  # whose client is made of this file's verbs

        for left in reversed(range(MOST_TRIES)):
            seen = self.experiment(experiment_id)
            try:
                return self.annotate(experiment_id, {"labels": labels(seen.labels)}, revision=seen.revision)
            except ClientError as error:
                if not left or error.status != CHANGED_MEANWHILE:
                    raise
        raise AssertionError("unreachable: the last try returns or raises")
