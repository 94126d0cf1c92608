"""A damaged row fails alone: everything else is listed, compared, exported and trained; the check names the row."""

import io
from collections.abc import Callable

import pytest
import sqlalchemy as sa

from orchestrator.errors import DamagedError
from orchestrator.export.cells import Format
from orchestrator.export.files import write_results, write_series
from orchestrator.jobs import RunAction, RunStatus
from orchestrator.kinds.tuning import Tuning
from orchestrator.records import DamagedExperiment
from orchestrator.store.admin import maintenance
from orchestrator.store.tables import chunks, experiments, results, run_specs
from tests.contract.conftest import Store
from tests.factories.stores import batch, comparison_spec, result
from worker.records.result import Observation

Damage = Callable[[str], str]


def truncated(text: str) -> str:
    return text[: len(text) // 2]


def flipped(text: str) -> str:
    """Another digit: still JSON, still a specification or a result."""
    return text.replace("10", "11", 1)


DAMAGES: list[Damage] = [truncated, flipped]


def finish(store: Store, count: int = 2) -> list[str]:
    """Run what waits."""
    leases = store.claim(cpus=count, limit=count)
    for lease in leases:
        store.attempts.hello(lease.run_id, lease.attempt, lease.token)
        points_batch = batch(0, range(1, 6))
        observation = Observation(step=1, probe="norms", blocks={"a": {"norm": 1.0}})
        store.attempts.append_points(
            lease.run_id, lease.attempt, lease.token, points_batch.model_copy(update={"observations": (observation,)})
        )
        store.attempts.finish(lease.run_id, lease.attempt, lease.token, result())
    return [lease.run_id for lease in leases]


def damage(store: Store, column: sa.Column[str], key: sa.Column[str], id: str, change: Damage) -> None:
    with store.database.writing() as connection:
        original = connection.execute(sa.select(column).where(key == id)).scalar_one()
        connection.execute(sa.update(column.table).where(key == id).values({column.name: change(original)}))


def exported(store: Store, experiment_id: str) -> str:
    file = io.BytesIO()
    write_results(store.runs.read_all(experiment_id), file, Format.CSV)
    return file.getvalue().decode()


@pytest.mark.parametrize("how", DAMAGES)
def test_a_damaged_result_fails_alone(store: Store, how: Damage) -> None:
    experiment = store.experiments.submit(comparison_spec(seeds=(1, 2))).experiment
    bad, good = finish(store)
    damage(store, results.c.result, results.c.run_id, bad, how)
    marked, whole = store.runs.page(experiment_id=experiment.id)
    assert (marked.id, marked.status, marked.result) == (bad, RunStatus.SUCCEEDED, None)
    assert marked.damaged is not None
    assert f"the stored result of run {bad}" in marked.damaged
    assert (whole.id, whole.damaged) == (good, None)
    assert store.runs.get(bad) == marked
    assert store.experiments.page()[0].id == experiment.id
    answer = store.analysis.compare(experiment.id)
    assert "damaged" in answer.notes[0]
    assert answer.rows[0].val_loss is not None
    assert answer.rows[0].val_loss.n == 1
    assert f"the stored result of run {bad}" in exported(store, experiment.id)
    (fault,) = maintenance.faults(store.database)
    assert f"results {bad}: the stored result" in fault


@pytest.mark.parametrize("how", DAMAGES)
def test_a_damaged_specification_fails_its_run_alone(store: Store, how: Damage) -> None:
    experiment = store.experiments.submit(comparison_spec(seeds=(1, 2, 3))).experiment
    bad = f"{experiment.id}-0000"
    damage(store, run_specs.c.spec, run_specs.c.run_id, bad, how)
    assert [run.damaged is not None for run in store.runs.page()] == [True, False, False]
    assert finish(store, 3) == [f"{experiment.id}-0001", f"{experiment.id}-0002"]
    failed = store.runs.get(bad)
    assert (failed.status, failed.spec) == (RunStatus.FAILED, None)
    assert failed.reason is not None
    assert "its specification" in failed.reason
    assert "db check" in failed.reason
    assert store.runs.events(bad)[-1].reason == failed.reason
    assert store.experiments.get(experiment.id).counts.done()
    assert store.analysis.compare(experiment.id).complete
    assert bad in exported(store, experiment.id)
    (fault,) = maintenance.faults(store.database)
    assert f"run_specs {bad}: the stored specification" in fault


def test_a_row_that_is_gone_fails_its_run_alone(store: Store) -> None:
    experiment = store.experiments.submit(comparison_spec(seeds=(1, 2))).experiment
    with store.database.writing() as connection:
        connection.execute(sa.delete(run_specs).where(run_specs.c.run_id == f"{experiment.id}-0000"))
    assert store.runs.page()[0].damaged == f"the stored specification of run {experiment.id}-0000 is missing"
    assert finish(store) == [f"{experiment.id}-0001"]
    assert store.runs.get(f"{experiment.id}-0000").status is RunStatus.FAILED
    assert maintenance.faults(store.database) == (f"run {experiment.id}-0000 has no specification",)


def test_a_specification_that_is_damaged_after_the_claim_is_told_to_its_worker(store: Store) -> None:
    store.experiments.submit(comparison_spec(seeds=(1, 2)))
    bad, good = store.claim(cpus=2, limit=2)
    damage(store, run_specs.c.spec, run_specs.c.run_id, bad.run_id, flipped)
    with pytest.raises(DamagedError, match=bad.run_id):
        store.attempts.hello(bad.run_id, 1, bad.token)
    assert store.attempts.hello(good.run_id, 1, good.token).run_id == good.run_id


@pytest.mark.parametrize("how", DAMAGES)
def test_a_damaged_experiment_is_listed_and_can_be_put_away(store: Store, how: Damage) -> None:
    experiment = store.experiments.submit(comparison_spec(name="broken", seeds=(1,))).experiment
    intact_experiment = store.experiments.submit(comparison_spec(name="whole", seeds=(1,))).experiment
    damage(store, experiments.c.spec, experiments.c.id, experiment.id, how)
    whole, marked = store.experiments.page()
    assert whole.id == intact_experiment.id
    assert isinstance(marked, DamagedExperiment)
    assert (marked.name, marked.counts.total) == ("broken", 1)
    with pytest.raises(DamagedError, match=f"the stored specification of experiment {experiment.id}"):
        store.experiments.get(experiment.id)
    assert len(finish(store)) == 2  # its runs have specifications of their own
    assert store.experiments.apply(experiment.id, RunAction.CANCEL).id == experiment.id
    assert store.experiments.delete(experiment.id).deleted_at is not None
    assert store.experiments.restore(experiment.id) == store.experiments.page()[1]
    (fault,) = maintenance.faults(store.database)
    assert fault.startswith("experiments ")
    assert ": the stored specification " in fault


def test_a_tuned_experiment_that_is_damaged_takes_down_the_ends_of_its_runs_and_is_over(store: Store) -> None:
    spec = comparison_spec(seeds=(2,), tuning=Tuning(seeds=(1,)))
    experiment = store.experiments.submit(spec).experiment
    damage(store, experiments.c.spec, experiments.c.id, experiment.id, truncated)
    assert len(finish(store, 3)) == 3
    store.follow()
    (marked,) = store.experiments.page()
    assert marked.counts.done()
    assert marked.counts.by_status == {RunStatus.SUCCEEDED: 3}


def test_damaged_points_are_left_out_and_counted(store: Store) -> None:
    experiment = store.experiments.submit(comparison_spec(seeds=(1, 2))).experiment
    leases = store.start_next(2)
    for lease in leases:
        store.attempts.append_points(lease.run_id, 1, lease.token, batch(0, range(1, 6)))
        store.attempts.append_points(lease.run_id, 1, lease.token, batch(1, range(6, 9)))
    bad, good = leases
    with store.database.writing() as connection:
        condition = (chunks.c.run_id == bad.run_id) & (chunks.c.sequence == 0)
        data = connection.execute(sa.select(chunks.c.data).where(condition)).scalar_one()
        connection.execute(sa.update(chunks).where(condition).values(data=data[:-3]))
    for lease in leases:
        store.attempts.finish(lease.run_id, 1, lease.token, result())
    assert [point.step for point in store.runs.points(bad.run_id)] == [6, 7, 8]
    assert [point.step for point in store.runs.points(good.run_id)] == list(range(1, 9))
    assert (store.runs.damaged_points(bad.run_id), store.runs.damaged_points(good.run_id)) == (5, 0)
    file = io.BytesIO()
    write_series(store.runs.series, store.runs.read_all(experiment.id), file, Format.CSV)
    assert file.getvalue().count(b"\n") == 1 + 3 + 8
    (fault,) = maintenance.faults(store.database)
    assert fault == f"chunks {bad.run_id} 1 0: the stored points is not what was written (its checksum is another)"
