"""Traces of a run, by OpenTelemetry: submit → claim → run → finish, across processes. Off unless an endpoint is named.

The submission's context, as W3C's `traceparent`, lies in the run's row and travels in the worker's assignment, so that
every process adds its spans to one trace. Where `OTEL_EXPORTER_OTLP_ENDPOINT` is not set nothing is imported at all.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Final

from worker.errors import TracingError

ENDPOINT_VARIABLE: Final = "OTEL_EXPORTER_OTLP_ENDPOINT"
"""OpenTelemetry's own; with its other variables it says where spans go."""
SCOPE: Final = "adapm-bench"
FLUSH_MILLISECONDS: Final = 5_000
"""A worker is ended soon after its last word; a collector that is away must not hold its slot for longer."""

_tracer: Any = None
_provider: Any = None


def configure(process: str) -> None:
    """Export the spans of this process, where the environment names an endpoint. Raises `TracingError`."""
    if not os.environ.get(ENDPOINT_VARIABLE):
        return
    try:
        processor = _spans().otlp_processor()
    except ModuleNotFoundError as error:
        raise TracingError(
            f"{ENDPOINT_VARIABLE} is set, but {error.name} is not installed. Install the project with its extra "
            "[otel], or unset it."
        ) from error
    use(processor, process)


def use(processor: Any, process: str) -> None:
    """Give the spans of this process to a processor of OpenTelemetry's, until `stop`."""
    global _tracer, _provider
    _provider = _spans().make_provider(processor, f"{SCOPE} {process}")
    _tracer = _provider.get_tracer(SCOPE)


def _spans() -> ModuleType:
    from worker.reporting import spans  # OpenTelemetry, of an extra

    return spans


def stop() -> None:
    """Export what is recorded, for a few seconds at most, and record no more in this process."""
    global _tracer, _provider
    if _provider is not None:
        _provider.force_flush(FLUSH_MILLISECONDS)
        _provider.shutdown()
    _tracer = _provider = None


def is_on() -> bool:
    """Whether spans are recorded in this process."""
    return _tracer is not None


@contextmanager
def span(
    name: str, parent: str | None = None, attributes: Mapping[str, str | int] | None = None
) -> Iterator[str | None]:
    """A span around what is done within: its `traceparent`, or None where none is recorded.

    Without a `parent` it begins a trace of its own.
    """
    if _tracer is None:
        yield None
        return
    with _spans().traced(_tracer, name, parent, attributes) as trace_parent:
        yield trace_parent
