"""What the console tells of a request while it runs, whoever collects it. The API and the pipelines know only this."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import NamedTuple, Protocol

from console.api.openai.several import Placed, close_events
from console.pipeline.ended import EndedAnswer
from console.pipeline.types import Failed, Finished

TRACE_HEADERS = ("traceparent", "tracestate")
"""Of W3C Trace Context."""
LONGEST_CONTEXT = 512
"""Letters that the specification asks for room for; a longer header is as good as none."""


class TracedRequest(NamedTuple):
    """A request for `answers` answers: what is said of it in a trace.

    `route` is a path of the API, `context` are the request's headers that name the client's trace.
    """

    number: int
    method: str
    route: str
    request_id: str
    model: str
    context: Mapping[str, str]
    answers: int = 1


class Tracer(Protocol):
    """Hears of requests and answers. Event loop only; never blocks or raises."""

    def new(self) -> int:
        """Return a number for a request; 0: nobody wants to hear of it."""
        ...

    def begin(self, request: TracedRequest) -> None:
        """A request is being answered from now on."""
        ...

    def answered(self, ended: EndedAnswer) -> None:
        """One of a request's answers ended."""
        ...

    def end(self, number: int, outcome: str) -> None:
        """A request is over: `stop` or `length`, `cancelled`, or the code of what went wrong."""
        ...


class NoTracer:
    """Nobody collects traces."""

    def new(self) -> int:
        return 0

    def begin(self, request: TracedRequest) -> None:
        pass

    def answered(self, ended: EndedAnswer) -> None:
        pass

    def end(self, number: int, outcome: str) -> None:
        pass


NO_TRACER = NoTracer()


def context_of(headers: Mapping[str, str]) -> dict[str, str]:
    """Pick the headers that name the client's trace."""
    found = {name: headers.get(name, "") for name in TRACE_HEADERS}
    return {name: value for name, value in found.items() if 0 < len(value) <= LONGEST_CONTEXT}


async def traced(events: AsyncIterator[Placed], tracer: Tracer, request: TracedRequest) -> AsyncGenerator[Placed, None]:
    """Pass a request's events on and tell the tracer when it begins and ends. Closing it closes `events`."""
    tracer.begin(request)
    outcome = "cancelled"
    try:
        async for place, event in events:
            if isinstance(event, Failed):
                outcome = event.code
            elif isinstance(event, Finished):
                outcome = event.reason
            yield place, event
    except Exception:
        outcome = "refused"
        raise
    finally:
        await close_events(events)
        tracer.end(request.number, outcome)
