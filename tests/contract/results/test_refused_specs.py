"""Stored specifications that are refused today wait with their fault, can be read, and stop nothing else."""

import hashlib
import json

import pytest
import sqlalchemy as sa

from optim.catalog.lookup import VARIABLE
from orchestrator.errors import ConflictError
from orchestrator.jobs import RunAction, RunStatus
from orchestrator.kinds.comparison import ComparisonSpec
from orchestrator.store import integrity
from orchestrator.store.integrity import checksum
from orchestrator.store.queue.queue import REFUSED_SECONDS
from orchestrator.store.tables import experiments, run_specs
from tests.contract.conftest import Store
from tests.factories.stores import comparison_spec

LOST = "lost-optimizer"
"""The lost optimizer, which no package of any test offers: a process remembers each that it has loaded."""


def lose_the_optimizer(store: Store, experiment_id: str) -> None:
    """Make the specification unknown, as if the experiment had been submitted while `LOST` was allowed."""
    with store.database.writing() as connection:
        for table, key in ((experiments, experiments.c.id), (run_specs, run_specs.c.run_id)):
            condition = key.startswith(experiment_id)
            for id, text in connection.execute(sa.select(key, table.c.spec).where(condition)).all():
                values = written(table, text.replace('"adamw"', f'"{LOST}"'))
                connection.execute(sa.update(table).where(key == id).values(values))


def written(table: sa.Table, text: str) -> dict[str, object]:
    """The columns of a specification as a submission would have written them."""
    if table is experiments:
        return {"spec": text, "spec_hash": hashlib.sha256(text.encode()).hexdigest()}
    return {"spec": text, "checksum": checksum(text)}


@pytest.fixture(params=["", LOST])
def lost(request: pytest.FixtureRequest, store: Store, monkeypatch: pytest.MonkeyPatch) -> str:
    """An experiment whose optimizer is not allowed any more, or is, and its package is gone."""
    experiment = store.experiments.submit(comparison_spec(seeds=(1,))).experiment
    lose_the_optimizer(store, experiment.id)
    monkeypatch.setenv(VARIABLE, request.param)
    return experiment.id


def test_a_run_that_is_refused_today_waits_with_its_fault_and_others_are_leased(store: Store, lost: str) -> None:
    experiment = store.experiments.submit(comparison_spec(name="another", seeds=(1,))).experiment
    leases = store.claim(cpus=4, limit=4)
    assert [lease.run_id for lease in leases] == [f"{experiment.id}-0000"]
    (run,) = store.runs.page(experiment_id=lost)
    assert run.status is RunStatus.QUEUED
    assert run.reason is not None
    assert "optimizer" in run.reason
    assert LOST in run.reason
    assert store.claim(cpus=3, limit=3) == ()


def test_it_is_leased_once_it_is_allowed_again(store: Store, lost: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert store.claim(cpus=4, limit=4) == ()
    with store.database.writing() as connection:
        query = sa.select(run_specs.c.spec).where(run_specs.c.run_id == f"{lost}-0000")
        text = connection.execute(query).scalar_one().replace(f'"{LOST}"', '"adamw"')
        statement = sa.update(run_specs).where(run_specs.c.run_id == f"{lost}-0000")
        connection.execute(statement.values(written(run_specs, text)))
    store.pass_time(REFUSED_SECONDS + 1)
    (lease,) = store.claim(cpus=4, limit=4)
    assert store.runs.get(lease.run_id).reason is None


def test_it_can_be_read_and_cancelled(store: Store, lost: str) -> None:
    spec = store.experiments.page()[0].spec
    assert isinstance(spec, ComparisonSpec)
    assert spec.candidates[0].optimizer == LOST
    (run,) = store.runs.page()
    assert run.spec is not None
    assert run.spec.optimizer.name == LOST
    cancelled = store.experiments.apply(lost, RunAction.CANCEL)
    assert cancelled.counts.by_status == {RunStatus.CANCELLED: 1}


@pytest.mark.parametrize("action", [RunAction.RESUME, RunAction.RETRY])
def test_it_cannot_begin_again(store: Store, lost: str, action: RunAction) -> None:
    store.experiments.apply(lost, RunAction.PAUSE if action is RunAction.RESUME else RunAction.CANCEL)
    runs = store.runs.page()
    for attempt in (lambda: store.experiments.apply(lost, action), lambda: store.runs.apply(f"{lost}-0000", action)):
        with pytest.raises(ConflictError, match=rf"{lost}-0000 cannot begin again.*{LOST}"):
            attempt()
    assert store.runs.page() == runs
    assert LOST in (store.experiments.get(lost).refused or "")


def test_a_newer_rule_does_not_hide_what_is_older() -> None:
    """Two GPUs and an automatic micro-batch were allowed together once."""
    planned = comparison_spec(gpus=2).model_dump(mode="json")
    planned["workload"]["execution"]["micro_batch_sequences"] = "auto"
    run = {
        "optimizer": {"name": "adamw", "lr": 0.001, "options": {}},
        "resources": planned["resources"],
        "seed": 1,
        "workload": planned["workload"],
    }
    text = json.dumps(run, sort_keys=True, separators=(",", ":"))
    assert integrity.run_spec(text, None).workload.execution.micro_batch_sequences == "auto"
