"""Traces by OpenTelemetry's SDK to a collector, OTLP over HTTP. Imported only where a collector is configured.

The SDK sends from a thread of its own, in batches; what it cannot send is dropped and logged there. Nothing of it is
global: two consoles in one process do not mix.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from itertools import count
from urllib.parse import urlsplit

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from agent.threads import finish_in_thread
from console.pipeline.ended import EndedAnswer
from console.telemetry.spans import answer_attributes, phase_spans, request_attributes
from console.telemetry.tracing import TracedRequest

SEND_S = 5.0
"""How long a collector may take."""
BATCH_MS = 2000
QUEUE = 4096
COMPLETE = frozenset({"stop", "length"})

_propagator = TraceContextTextMapPropagator()


def traces_url(endpoint: str) -> str:
    """Return where traces are sent: an address without a path has the one that OTLP prescribes."""
    path = urlsplit(endpoint).path
    return endpoint if path.strip("/") else f"{endpoint.rstrip('/')}/v1/traces"


@dataclass
class _Open:
    span: trace.Span
    context: otel_context.Context
    endings: list[str] = field(default_factory=list)
    """Of the answers so far."""


class OtlpTracer:
    """Implements `Tracer`. Made and used on the event loop; `close` sends what is left."""

    def __init__(self, endpoint: str, version: str) -> None:
        """`endpoint` is the collector's address, like http://collector:4318.

        What it needs to be let in is taken from OTEL_EXPORTER_OTLP_HEADERS, so that no secret is in a command line.
        """
        resource = Resource.create({"service.name": "fallow-console", "service.version": version})
        exporter = OTLPSpanExporter(endpoint=traces_url(endpoint), timeout=SEND_S)
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(
            BatchSpanProcessor(exporter, max_queue_size=QUEUE, schedule_delay_millis=BATCH_MS)
        )
        self._tracer = self._provider.get_tracer("fallow.console", version)
        self._numbers = count(1)
        self._open: dict[int, _Open] = {}

    def new(self) -> int:
        """Return a number for a request."""
        return next(self._numbers)

    def begin(self, request: TracedRequest) -> None:
        """Open the span of a request, below the client's if it named one."""
        above = _propagator.extract(request.context, otel_context.Context())
        span = self._tracer.start_span(
            f"{request.method} {request.route}",
            context=above,
            kind=SpanKind.SERVER,
            attributes=request_attributes(request),
        )
        self._open[request.number] = _Open(span, trace.set_span_in_context(span, above))

    def answered(self, ended: EndedAnswer) -> None:
        """Add the phases of an answer."""
        known = self._open.get(ended.trace)
        if known is None:
            return
        if not known.endings:
            known.span.set_attributes(answer_attributes(ended))
        for phase in phase_spans(ended, len(known.endings), time.time_ns()):
            span = self._tracer.start_span(
                phase.name, context=known.context, start_time=phase.from_ns, attributes=phase.attributes
            )
            span.end(phase.to_ns)
        known.endings.append(ended.code or ended.ending)
        known.span.set_attribute("gen_ai.response.finish_reasons", known.endings)

    def end(self, number: int, outcome: str) -> None:
        """Close the span of a request."""
        known = self._open.pop(number, None)
        if known is None:
            return
        known.span.set_attribute("fallow.outcome", outcome)
        if outcome not in COMPLETE and outcome != "cancelled":
            known.span.set_attribute("error.type", outcome)
            known.span.set_status(Status(StatusCode.ERROR, outcome))
        known.span.end()

    async def close(self) -> None:
        """Send what is left, for as long as one attempt takes, and end the thread."""
        for number in list(self._open):
            self.end(number, "cancelled")
        await finish_in_thread(self._provider.shutdown)
