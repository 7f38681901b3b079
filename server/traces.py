"""Sends spans by OTLP over HTTP, with the SDK of OpenTelemetry.

The SDK's own variables are honoured: OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_HEADERS,
OTEL_SERVICE_NAME, OTEL_TRACES_SAMPLER and the others. Spans wait in a bounded queue and are sent by
a thread; what does not fit, or what a collector does not take, is lost.
"""

import os
from typing import TYPE_CHECKING

from foreshore import tracing
from foreshore.errors import Unavailable

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Tracer

INSTALL = "pip install 'foreshore[otel]'"
_PATH = "/v1/traces"
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_CLOSE_MS = 2_000  # for spans that wait when the server ends


class Traces:
    """Sends spans until it is closed."""

    def __init__(self, provider: "TracerProvider") -> None:
        self._provider = provider
        tracing.switch(OtelRecorder(provider.get_tracer("foreshore")))

    def close(self) -> None:
        """Send what waits, and end. Blocks for two seconds at most, and for a request's time."""
        tracing.switch(None)
        self._provider.force_flush(_CLOSE_MS)
        self._provider.shutdown()


def open_traces(endpoint: str | None) -> Traces | None:
    """Begin to send spans, if there is an endpoint in the option or in OpenTelemetry's variables.

    Raises Unavailable if the packages are not installed.
    """
    named = any(os.environ.get(name) for name in _ENDPOINTS)
    if not (endpoint or named) or os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import SERVICE_NAME, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        raise Unavailable("OpenTelemetry is not installed", hint=f"Run {INSTALL}.") from None
    name = os.environ.get("OTEL_SERVICE_NAME") or "foreshore"
    resource = Resource.create({SERVICE_NAME: name})
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    url = None if endpoint is None else _with_path(endpoint)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=url)))
    return Traces(provider)


def _with_path(endpoint: str) -> str:
    """Return the URL for spans, as of OTEL_EXPORTER_OTLP_ENDPOINT."""
    return endpoint if endpoint.endswith(_PATH) else endpoint.rstrip("/") + _PATH


class OtelRecorder:
    """Makes spans of OpenTelemetry from those that have ended."""

    def __init__(self, tracer: "Tracer") -> None:
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._tracer = tracer
        self._propagator = TraceContextTextMapPropagator()

    def record(self, span: tracing.Span, traceparent: str | None) -> None:
        """Make a root span and those within it."""
        from opentelemetry.context import Context
        from opentelemetry.trace import SpanKind

        context = Context()
        if traceparent is not None:
            context = self._propagator.extract({"traceparent": traceparent}, context)
        self._made(span, context, SpanKind.SERVER)

    def _made(self, span: tracing.Span, context: "Context", kind: object) -> None:
        from opentelemetry.trace import SpanKind, Status, StatusCode, set_span_in_context

        assert isinstance(kind, SpanKind)
        made = self._tracer.start_span(
            span.name, context, kind, attributes=span.attributes, start_time=span.began
        )
        if made.is_recording():
            if span.error is not None:
                made.set_status(Status(StatusCode.ERROR, span.error))
            inner = set_span_in_context(made, context)
            for each in span.phases:
                self._made(each, inner, SpanKind.INTERNAL)
        made.end(span.ended or None)
