"""One trace a submission, across the processes that carry it out; and nothing at all where nobody asked for it."""

import sys
from collections.abc import Iterator

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from orchestrator.dispatch.dispatcher import Dispatcher
from orchestrator.jobs import Lease
from orchestrator.kinds.tuning import Tuning
from orchestrator.store.leadership import LeaderLoop, Leadership
from orchestrator.store.queue import trials
from orchestrator.store.queue.capacity import Node, NodeId
from orchestrator.sweeps.trials import planned_parameters, trial_run
from tests.contract.conftest import Store
from tests.factories.stores import comparison_spec, result
from tests.factories.sweep import sweep_spec
from worker.attempt import attempt_span
from worker.errors import TracingError
from worker.reporting import tracing


@pytest.fixture
def exporter() -> Iterator[InMemorySpanExporter]:
    """Spans of this process in memory."""
    found = InMemorySpanExporter()
    tracing.use(SimpleSpanProcessor(found), "test")
    yield found
    tracing.stop()


class KeepingRunner:
    """Starts nothing and keeps the lease."""

    def __init__(self) -> None:
        self.leases: list[Lease] = []

    def nodes(self) -> list[Node]:
        return [Node(id=NodeId("here"), cpus=1, gpus=0)]

    def start(self, lease: Lease, node: NodeId) -> None:
        self.leases.append(lease)

    def adopt(self, live: object) -> tuple[()]:
        return ()

    def collect_ended(self) -> tuple[()]:
        return ()

    def kill(self, run_id: str, attempt: int) -> None: ...

    def close(self, grace_seconds: float) -> tuple[()]:
        return ()


def test_a_run_is_one_trace_from_submit_to_finish(
    store: Store, exporter: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The three later spans are children of the submission's; the worker learns of it by its assignment."""
    monkeypatch.delenv(tracing.ENDPOINT_VARIABLE, raising=False)
    monkeypatch.setattr(tracing, "stop", lambda: None)  # the worker of this test is this process, which goes on
    store.experiments.submit(comparison_spec(seeds=(1,)))
    runner = KeepingRunner()
    LeaderLoop(Dispatcher(store.queue, runner, Leadership(store.database, "here"))).tick()
    (lease,) = runner.leases
    assignment = store.attempts.hello(lease.run_id, 1, lease.token)
    with attempt_span(assignment):
        store.attempts.finish(lease.run_id, 1, lease.token, result())
    monkeypatch.undo()
    spans: dict[str, ReadableSpan] = {span.name: span for span in exporter.get_finished_spans()}
    assert spans.keys() == {"submit", "claim", "run", "finish"}
    root = spans.pop("submit")
    assert root.parent is None
    for span in spans.values():
        assert span.parent is not None
        assert (span.parent.trace_id, span.parent.span_id) == (root.context.trace_id, root.context.span_id)
        assert (span.attributes or {})["run"] == lease.run_id


def test_runs_that_come_later_are_of_the_trace_of_their_submission(
    store: Store, exporter: InMemorySpanExporter
) -> None:
    """Phase 2 of a tuned comparison, queued by the end of a run, and a sweep's trials, added by its driver."""
    tuned = comparison_spec(learning_rates=(1e-3,), seeds=(1,), tuning=Tuning(seeds=(0,)))
    comparison = store.experiments.submit(tuned).experiment
    (lease,) = store.claim(cpus=1, limit=1)
    store.attempts.hello(lease.run_id, 1, lease.token)
    store.attempts.finish(lease.run_id, 1, lease.token, result())
    spec = sweep_spec()
    sweep = store.experiments.submit(spec).experiment
    parameters = planned_parameters(spec, 0)
    assert parameters is not None
    trials.add(store.database, sweep.id, spec, 0, trial_run(spec, 0, parameters))
    roots = {
        (span.attributes or {})["experiment"]: span for span in exporter.get_finished_spans() if span.name == "submit"
    }
    later = store.claim(cpus=2, limit=2)
    assert {each.run_id for each in later} == {f"{comparison.id}-0001", f"{sweep.id}-0000"}
    for each in later:
        root = roots[comparison.name if each.run_id.startswith(comparison.id) else sweep.name].context
        assert (each.trace_parent or "").startswith(f"00-{root.trace_id:032x}-{root.span_id:016x}-")


def test_without_an_endpoint_nothing_is_recorded(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(tracing.ENDPOINT_VARIABLE, raising=False)
    store.experiments.submit(comparison_spec(seeds=(1,)))
    (lease,) = store.claim(cpus=1, limit=1)
    assert store.attempts.hello(lease.run_id, 1, lease.token).trace_parent is None


def test_an_endpoint_without_the_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(tracing.ENDPOINT_VARIABLE, "http://127.0.0.1:1")
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(TracingError, match=r"with its extra \[otel\]"):
        tracing.configure("api")
