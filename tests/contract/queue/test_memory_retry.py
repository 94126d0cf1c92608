"""A run that ran out of memory is tried again with half the micro-batch, on SQLite and PostgreSQL."""

import pytest

from orchestrator.jobs import AttemptOutcome, Lease, RunStatus
from orchestrator.store.queue.completion import halve_micro_batch
from tests.contract.conftest import Store
from tests.factories.stores import comparison_spec, result
from worker.records.protocol import Failure, FailureKind
from worker.spec.run import Budget, Execution, OptimizerSpec, Resources, RunSpec, Workload

TOO_LARGE = Failure(kind=FailureKind.OUT_OF_MEMORY, message="out of memory", device_seconds=2.0)


def submit(store: Store, execution: Execution, batch_sequences: int = 8) -> str:
    workload = Workload(
        model="gpt2-tiny", budget=Budget(steps=10, batch_sequences=batch_sequences), execution=execution
    )
    spec = comparison_spec(seeds=(1,)).model_copy(update={"workload": workload})
    (run,) = store.runs.page(experiment_id=store.experiments.submit(spec).experiment.id)
    return run.id


def start(store: Store) -> tuple[Lease, int | None]:
    """Claim the head of the queue and say hello; the lease, and the micro-batch that the worker is told."""
    (lease,) = store.claim(cpus=8, limit=1)
    return lease, store.attempts.hello(lease.run_id, lease.attempt, lease.token).micro_batch_sequences


@pytest.mark.parametrize("asked", [None, 8])
def test_each_try_takes_half_of_the_one_before_down_to_one_sequence(store: Store, asked: int | None) -> None:
    """Four attempts, none of them held against the run; the fifth word of the kind is a failure like any other."""
    run_id = submit(store, Execution(micro_batch_sequences=asked))
    micro_batches = []
    for _ in range(4):
        lease, micro_batch = start(store)
        micro_batches.append(micro_batch)
        store.attempts.finish(run_id, lease.attempt, lease.token, TOO_LARGE)
        store.pass_time(10)
    assert micro_batches == [None, 4, 2, 1]
    run = store.runs.get(run_id)
    assert (run.status, run.attempt, run.micro_batch_sequences) == (RunStatus.RETRY_WAIT, 4, 1)
    reasons = [event.reason for event in store.runs.events(run_id) if event.to_status is RunStatus.RETRY_WAIT]
    assert reasons[0] == "out of memory; the next attempt takes micro-batches of 4 sequences"
    assert [attempt.outcome for attempt in store.runs.attempts(run_id)] == [AttemptOutcome.BROKEN] * 4
    assert run.device_seconds == 8.0, "every try is paid for"
    lease, _ = start(store)
    store.attempts.finish(run_id, lease.attempt, lease.token, result())
    assert store.runs.get(run_id).status is RunStatus.SUCCEEDED


@pytest.mark.parametrize("execution", [Execution(retry_out_of_memory=False), Execution(micro_batch_sequences="auto")])
def test_it_is_a_failure_where_the_run_wants_no_smaller_one(store: Store, execution: Execution) -> None:
    run_id = submit(store, execution)
    lease, _ = start(store)
    store.queue.release(run_id, lease.attempt, AttemptOutcome.LOST, "ended by Ray", out_of_memory=True)
    run = store.runs.get(run_id)
    assert (run.status, run.reason, run.micro_batch_sequences) == (RunStatus.RETRY_WAIT, "ended by Ray", None)


def test_odd_micro_batches_are_halved_upwards() -> None:
    assert halvings(run_spec(batch_sequences=7)) == [4, 2, 1]


def test_a_process_of_several_begins_with_its_share() -> None:
    assert halvings(run_spec(batch_sequences=64, processes=4)) == [8, 4, 2, 1]


def run_spec(*, batch_sequences: int, processes: int | None = None) -> RunSpec:
    return RunSpec(
        workload=Workload(model="gpt2-tiny", budget=Budget(steps=1, batch_sequences=batch_sequences)),
        optimizer=OptimizerSpec(name="adamw", lr=1e-3),
        seed=0,
        resources=Resources(processes=processes),
    )


def halvings(spec: RunSpec) -> list[int]:
    """The micro-batches of one attempt after another."""
    sizes: list[int] = []
    while (size := halve_micro_batch(spec, sizes[-1] if sizes else None)) is not None:
        sizes.append(size)
    return sizes
