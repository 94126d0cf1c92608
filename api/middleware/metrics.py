"""Metrics for Prometheus: what the database counts, and what this process has answered.

Queue, attempts, latencies and export lag come from the database (`orchestrator/store/activity.py`), so that the
api answers for the dispatcher, too; requests and points are counted where they arrive, in each api process for itself.
"""

import time
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.registry import Collector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.middleware.base import HttpMiddleware
from orchestrator.records import ServiceMetrics
from orchestrator.services.monitor import Monitor

PREFIX = "adapm_bench_"
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class Meters:
    """The metrics of a process, and their registry."""

    def __init__(self, monitor: Monitor) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # a time stamp beside every counter tells nobody anything
        self.registry = CollectorRegistry()
        self.registry.register(ServiceMetricsCollector(monitor))
        self.points = Counter(f"{PREFIX}points", "Points taken from workers by this process.", registry=self.registry)
        self.requests = Histogram(
            f"{PREFIX}request_seconds",
            "Requests answered by this process; streams are not counted.",
            ("method", "route", "status"),
            buckets=BUCKETS,
            registry=self.registry,
        )


class ServiceMetricsCollector(Collector):
    """The database's counts as Prometheus wants them."""

    def __init__(self, monitor: Monitor) -> None:
        self._monitor = monitor

    def collect(self) -> Iterable[Metric]:
        """Yield all families; raises `StoreError` while the database is away."""
        return families(self._monitor.metrics())

    def describe(self) -> Iterable[Metric]:
        """Yield nothing: a registry otherwise asks the database when it is created."""
        return ()


def families(metrics: ServiceMetrics) -> Iterable[Metric]:
    """Yield the metrics as metric families."""
    runs = GaugeMetricFamily(f"{PREFIX}runs", "Runs by state.", labels=["status"])
    for status, count in metrics.runs.items():
        runs.add_metric([status.value], count)
    ended = CounterMetricFamily(
        f"{PREFIX}attempts_ended", "Attempts by outcome; `lost` are leases that expired and processes that died.",
        labels=["outcome"],
    )  # fmt: skip
    for outcome, count in metrics.attempts.items():
        ended.add_metric([outcome.value], count)
    claim = SummaryMetricFamily(f"{PREFIX}claim_wait_seconds", "From a run's submission to its first lease.")
    claim.add_metric([], count_value=metrics.claim.count, sum_value=metrics.claim.seconds)
    dispatch = SummaryMetricFamily(f"{PREFIX}dispatch_seconds", "From an attempt's lease to its worker's first word.")
    dispatch.add_metric([], count_value=metrics.dispatch.count, sum_value=metrics.dispatch.seconds)
    gauge, counter = GaugeMetricFamily, CounterMetricFamily
    return (
        runs,
        ended,
        claim,
        dispatch,
        gauge(f"{PREFIX}cpus_at_work", "CPUs of leased runs.", value=metrics.cpus_at_work),
        gauge(f"{PREFIX}gpus_at_work", "GPUs of leased runs.", value=metrics.gpus_at_work),
        counter(f"{PREFIX}device_seconds", "Device time of all attempts.", value=metrics.device_seconds),
        gauge(f"{PREFIX}export_backlog", "Reports that MLflow has not yet.", value=metrics.export_backlog),
        gauge(f"{PREFIX}export_lag_seconds", "Age of the oldest of them.", value=metrics.export_lag_seconds),
    )


class MetricsMiddleware(HttpMiddleware):
    """Time every answer but streams, by the route's pattern: an id is not a label."""

    def __init__(self, app: ASGIApp, meters: Meters) -> None:
        super().__init__(app)
        self.meters = meters

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, and note how long that took."""
        start, status, streams = time.perf_counter(), 500, False

        async def note_status(message: Message) -> None:
            nonlocal status, streams
            if message["type"] == "http.response.start":
                status = message["status"]
                streams = (b"content-type", b"text/event-stream; charset=utf-8") in message["headers"]
            await send(message)

        try:
            await self.app(scope, receive, note_status)
        finally:
            if not streams:
                method = scope["method"] if scope["method"] in METHODS else "other"
                # `/v1/runs/{run_id}`, from the table of routes; what is not in it is `none`: labels need an end.
                placed: str | None = scope.get("bench.route")
                pattern = placed.partition(" ")[2] if placed and "route" in scope else "none"
                self.meters.requests.labels(method, pattern, str(status)).observe(time.perf_counter() - start)
