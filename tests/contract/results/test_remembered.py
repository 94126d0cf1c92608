"""Ended runs are read once, and anew whenever anything about them has changed; on SQLite and PostgreSQL."""

from collections.abc import Sequence

import pytest
from sqlalchemy.engine import Connection

from orchestrator.errors import NotFoundError
from orchestrator.jobs import RunAction, RunStatus
from orchestrator.records import RunFilter, RunRecord
from orchestrator.services.analysis import FEW, EndedRuns
from orchestrator.store import reads
from tests.contract.conftest import Store
from tests.factories.stores import comparison_spec, result


def plain(store: Store, experiment_id: str) -> tuple[RunRecord, ...]:
    """The runs as they are read without any memory."""
    with store.database.reading() as connection:
        where = RunFilter(experiment_id=experiment_id)
        return reads.run_page(connection, where=where, sort=None, limit=None, after=None)


def recalled(store: Store, memory: EndedRuns, experiment_id: str) -> tuple[RunRecord, ...]:
    with store.database.reading() as connection:
        found = memory.read_runs(connection, experiment_id)
    assert found == plain(store, experiment_id)
    return found


def test_what_is_remembered_is_what_would_be_read(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through results, a cancel and a retry; and a run that has ended is not read a second time."""
    memory = EndedRuns()
    id = store.experiments.submit(comparison_spec(seeds=(1, 2, 3))).experiment.id
    recalled(store, memory, id)
    first, *_ = store.claim(cpus=2, gpus=0, limit=2)
    store.attempts.hello(first.run_id, 1, first.token)
    recalled(store, memory, id)
    store.attempts.finish(first.run_id, 1, first.token, result(final_val_loss=2.5))
    recalled(store, memory, id)
    store.experiments.apply(id, RunAction.CANCEL)
    ended = [run.id for run in recalled(store, memory, id) if run.status is RunStatus.CANCELLED]
    asked: list[list[str]] = []
    read = reads.runs_of

    def noted(connection: Connection, run_ids: Sequence[str]) -> tuple[RunRecord, ...]:
        asked.append(list(run_ids))
        return read(connection, run_ids)

    monkeypatch.setattr(reads, "runs_of", noted)
    recalled(store, memory, id)
    assert not {first.run_id, *ended} & {each for ids in asked for each in ids}
    store.experiments.apply(id, RunAction.RETRY)
    assert {run.status for run in recalled(store, memory, id) if run.id in ended} == {RunStatus.QUEUED}


def test_a_large_experiment_is_read_whole_and_memory_is_bounded(store: Store) -> None:
    memory = EndedRuns(most=FEW)
    small = store.experiments.submit(comparison_spec()).experiment.id
    large = store.experiments.submit(comparison_spec(seeds=tuple(range(256)))).experiment.id
    for id in (small, large):
        store.experiments.apply(id, RunAction.CANCEL)
    for id in (small, large, small, large):
        recalled(store, memory, id)
    with store.database.reading() as connection, pytest.raises(NotFoundError):
        memory.read_runs(connection, "nowhere")
