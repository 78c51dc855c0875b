"""Traces of calls by OpenTelemetry, sent over OTLP/HTTP. Needs the extra ``tracing``: imported only when asked for."""

from collections.abc import Iterable, Sequence

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_INSTANCE_ID, SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

_propagator = TraceContextTextMapPropagator()
_TRACE_HEADERS = frozenset({b"traceparent", b"tracestate"})


class _Span:
    def __init__(self, span: trace.Span) -> None:
        self._span = span

    def carrier(self) -> Sequence[tuple[str, str]]:
        headers: dict[str, str] = {}
        _propagator.inject(headers, trace.set_span_in_context(self._span))
        return tuple(headers.items())

    def end(self, status: int, error: str, attributes: Iterable[tuple[str, str | int | float]]) -> None:
        self._span.set_attribute("http.response.status_code", status)
        for name, value in attributes:
            self._span.set_attribute(name, value)
        if status >= 500:
            self._span.set_status(trace.StatusCode.ERROR, error)
        self._span.end()


class OpenTelemetry:
    """``Tracing`` by OpenTelemetry. A thread of its own sends spans in batches; what cannot be sent is dropped."""

    def __init__(self, exporter: SpanExporter, replica: str) -> None:
        resource = Resource.create({SERVICE_NAME: "autellix-controller", SERVICE_INSTANCE_ID: replica})
        self._provider = TracerProvider(resource=resource)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("autellix_controller")

    def start(self, route: str, headers: Sequence[tuple[bytes, bytes]]) -> _Span:
        """See ``Tracing``. A span that the client does not sample is not sampled here either."""
        carrier = {name.decode(): value.decode("latin-1") for name, value in headers if name in _TRACE_HEADERS}
        span = self._tracer.start_span(
            f"POST {route}",
            context=_propagator.extract(carrier),
            kind=trace.SpanKind.SERVER,
            attributes={"http.request.method": "POST", "http.route": route},
        )
        return _Span(span)

    def close(self) -> None:
        """Sends what is left, for at most a few seconds. Blocks."""
        self._provider.shutdown()


def to_collector(endpoint: str, replica: str) -> OpenTelemetry:
    """Traces to a collector, whose URL for traces over HTTP is ``endpoint``."""
    return OpenTelemetry(OTLPSpanExporter(endpoint=endpoint, timeout=5), replica)
