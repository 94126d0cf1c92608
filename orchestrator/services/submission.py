"""Submitting: specifications become experiments of the queue, one by one or several in one transaction."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from orchestrator.errors import MissingDataError
from orchestrator.kinds.registry import ExperimentSpec
from orchestrator.records import ExperimentRecord, Submission
from orchestrator.settings import Remote
from orchestrator.store.queue.queue import Queue
from orchestrator.store.queue.submission import LARGE_RUNS, Submittal, Submitted
from worker.data.prepared import missing_data
from worker.reporting import tracing

Made = TypeVar("Made")


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """An experiment that somebody wants."""

    spec: ExperimentSpec
    key: str | None = None
    """Its idempotency key."""
    by: str | None = None
    """The id of the caller's key, to whose quota its runs are charged."""
    cloned_from: str | None = None


class SubmissionVerbs(ABC):
    """The verbs of this file, for `Bench`, which brings the queue and the folders."""

    _queue: Queue
    _datasets_folder: Path
    _remote: Remote

    @abstractmethod
    def experiment(self, experiment_id: str) -> ExperimentRecord:
        """One experiment with its counts and progress."""

    def submit(
        self,
        spec: ExperimentSpec,
        key: str | None = None,
        *,
        by: str | None = None,
        cloned_from: str | None = None,
    ) -> Submission:
        """Queue an experiment durably. The same key and specification give the same experiment again; the same key
        with another specification raises `IdempotencyError`; data that only a person can prepare must be there, else
        `MissingDataError`. What its runs use is charged to the quota of the key `by`."""
        (answer,) = self.submit_together([Proposal(spec=spec, key=key, by=by, cloned_from=cloned_from)])
        if isinstance(answer, Exception):
            raise answer
        return answer

    def submit_together(self, proposals: Sequence[Proposal]) -> list[Submission | Exception]:
        """As `submit`, for several in one transaction: the answer of each, or what refuses this one alone."""
        with ExitStack() as spans:
            ready = [_tried(partial(self._submittal, each, spans)) for each in proposals]
            stored = iter(self._queue.submit([each for each in ready if isinstance(each, Submittal)]))
            return [self._answer(next(stored)) if isinstance(each, Submittal) else each for each in ready]

    def is_quick(self, spec: ExperimentSpec) -> bool:
        """Whether others may wait for its submission: it plans few runs, and asks no remote storage for its data."""
        few = spec.has_driver or (not spec.cells() and spec.run_count() <= LARGE_RUNS)
        return few and self._remote.dataset_url is None

    def missing(self, spec: ExperimentSpec) -> list[str]:
        """A sentence for each thing that only a person can bring and that is not there."""
        return missing_data(spec.workload, self._datasets_folder, self._remote.dataset_url)

    def _submittal(self, proposal: Proposal, spans: ExitStack) -> Submittal:
        if found := self.missing(proposal.spec):
            raise MissingDataError(" ".join(found))
        trace_parent = spans.enter_context(tracing.span("submit", None, {"experiment": proposal.spec.name}))
        return Submittal.of(
            proposal.spec,
            proposal.key,
            by=proposal.by,
            trace_parent=trace_parent,
            cloned_from=proposal.cloned_from,
        )

    def _answer(self, submitted: Submitted | Exception) -> Submission | Exception:
        if isinstance(submitted, Exception):
            return submitted
        id, new = submitted
        return _tried(lambda: Submission(experiment=new or self.experiment(id), created=new is not None))


def _tried(make: Callable[[], Made]) -> Made | Exception:
    try:
        return make()
    except Exception as error:  # noqa: BLE001 - the answer to this one alone
        return error
