"""Spans by OpenTelemetry's own classes; `tracing.py` imports this where an endpoint is named."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

PROPAGATOR = TraceContextTextMapPropagator()


def otlp_processor() -> SpanProcessor:
    """What exports to the endpoint that the environment names. Raises `ModuleNotFoundError`."""
    exporter = import_module("opentelemetry.exporter.otlp.proto.http.trace_exporter")  # a package of its own
    return BatchSpanProcessor(exporter.OTLPSpanExporter())


def make_provider(processor: SpanProcessor, service: str) -> TracerProvider:
    """Where tracers come from whose spans that processor gets."""
    provider = TracerProvider(resource=Resource.create({"service.name": service}))
    provider.add_span_processor(processor)
    return provider


@contextmanager
def traced(tracer: Tracer, name: str, parent: str | None, attributes: Mapping[str, Any] | None) -> Iterator[str]:
    """A span around what is done within: its `traceparent`. Without a `parent` it begins a trace."""
    before = PROPAGATOR.extract({"traceparent": parent}, Context()) if parent else Context()
    with tracer.start_as_current_span(name, before, attributes=attributes):
        carrier: dict[str, str] = {}
        PROPAGATOR.inject(carrier)
        yield carrier["traceparent"]
