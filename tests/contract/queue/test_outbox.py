"""The outbox: everything that happened is told at least once, and nothing before it has happened."""

import pytest

from orchestrator.jobs import RunAction
from orchestrator.store.outgoing.exports import ExportOutbox
from orchestrator.store.tables import OutboxKind
from tests.contract.conftest import Store
from tests.factories.stores import comparison_spec, result


@pytest.fixture
def outbox(store: Store) -> ExportOutbox:
    return ExportOutbox(store.database)


def told(outbox: ExportOutbox) -> list[tuple[OutboxKind, str | None]]:
    return [(entry.kind, entry.run_id) for entry in outbox.due()]


def test_a_submission_and_each_end_of_a_run_are_told_in_order(store: Store, outbox: ExportOutbox) -> None:
    experiment = store.experiments.submit(comparison_spec(seeds=(1, 2))).experiment
    first, second = (run.id for run in store.runs.page(experiment_id=experiment.id))
    lease = store.start()
    assert told(outbox) == [(OutboxKind.EXPERIMENT_SUBMITTED, None)]
    store.attempts.finish(first, 1, lease.token, result())
    store.runs.apply(second, RunAction.CANCEL)
    assert told(outbox) == [
        (OutboxKind.EXPERIMENT_SUBMITTED, None),
        (OutboxKind.RUN_ENDED, first),
        (OutboxKind.RUN_ENDED, second),
    ]
    assert {entry.experiment_id for entry in outbox.due()} == {experiment.id}


def test_a_delivered_entry_does_not_come_back(store: Store, outbox: ExportOutbox) -> None:
    store.experiments.submit(comparison_spec())
    (entry,) = outbox.due()
    outbox.confirm(entry.id)
    outbox.confirm(entry.id)
    outbox.postpone(entry.id, "too late to fail")
    assert outbox.due() == ()
    assert store.monitor.metrics().export_backlog == 0


def test_a_failed_entry_comes_back_after_a_growing_pause_and_blocks_no_other(
    store: Store, outbox: ExportOutbox
) -> None:
    broken, fine = (store.experiments.submit(comparison_spec()).experiment.id for _ in range(2))
    for pause in (1, 2, 4, 8):
        (entry, *_) = outbox.due()
        assert entry.experiment_id == broken
        outbox.postpone(entry.id, "MLflow is away\x00")
        assert [entry.experiment_id for entry in outbox.due()] == [fine]
        store.database.clock_offset_seconds += pause - 0.5
        assert len(outbox.due()) == 1
        store.database.clock_offset_seconds += 0.6
    assert store.monitor.metrics().export_backlog == 2
