"""Several answers to one request at once, as one run of events. Event loop only."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence

from console.pipeline.types import Event, Failed, Finished, GenerationRequest, Generator, Text

Placed = tuple[int, Event]
"""An event, and which of a request's answers it is of."""


async def close_events(events: AsyncIterator[object]) -> None:
    """Close a generation; its stream leaves the pipeline. Harmless when it already ended."""
    aclose: Callable[[], Awaitable[None]] | None = getattr(events, "aclose", None)
    if aclose is not None:
        await aclose()


def ended_early() -> Failed:
    """Return the failure of an answer that stopped without saying how it ended."""
    return Failed("stage_failed", "The answer ended without a finish; send the request again.")


async def answer_all(
    generator: Generator, requests: Sequence[GenerationRequest], answers: int = 1
) -> AsyncGenerator[Placed, None]:
    """Yield the events of all answers as they come; ends after the last Finished or the first Failed.

    `requests` holds `answers` of each prompt one after the other. The first of them begins alone and the others after
    its first token: then the prompt is in the caches, and they share it. Closing ends all of them.

    Raises what `Generator.generate` raises.
    """
    if len(requests) == 1:
        events = generator.generate(requests[0])
        try:
            async for only in events:
                yield 0, only
        finally:
            await close_events(events)
        return
    came: asyncio.Queue[tuple[int, Event | Exception]] = asyncio.Queue()
    running = [
        asyncio.create_task(_run(generator, requests, place, came)) for place in range(0, len(requests), answers)
    ]
    started: set[int] = set()
    left = len(requests)
    try:
        while left:
            place, event = await came.get()
            if isinstance(event, Exception):
                raise event
            if isinstance(event, Text | Finished) and place % answers == 0 and place not in started:
                started.add(place)
                others = range(place + 1, place + answers)
                running += [asyncio.create_task(_run(generator, requests, other, came)) for other in others]
            yield place, event
            if isinstance(event, Failed):
                return
            left -= isinstance(event, Finished)
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def _run(
    generator: Generator,
    requests: Sequence[GenerationRequest],
    place: int,
    came: asyncio.Queue[tuple[int, Event | Exception]],
) -> None:
    events = generator.generate(requests[place])
    try:
        async for event in events:
            came.put_nowait((place, event))
            if isinstance(event, Finished | Failed):
                return
        came.put_nowait((place, ended_early()))
    except Exception as error:  # noqa: BLE001 - handed to whoever waits for the answers, who raises it
        came.put_nowait((place, error))
    finally:
        await close_events(events)
