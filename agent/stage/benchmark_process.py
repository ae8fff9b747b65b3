"""The process that measures a real layer (`benchmark.py`), run to its end: the agent's part of it. Event loop only."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable

import msgspec

from agent.children import NO_WINDOW, log_words
from agent.stage.pipes import encode_spec
from agent.stage.speeds import EXIT_YIELDED, Measured, MeasureSpec

log = logging.getLogger(__name__)

LIMIT_S = 120.0
POLL_S = 0.1
"""How soon a process is ended once it must be."""
MAX_ANSWER_BYTES = 64 * 1024


class NotMeasured(Exception):
    """A measuring process gave no answer; the text is a sentence. `again`: it was only not the time for it."""

    def __init__(self, message: str, *, again: bool = False) -> None:
        super().__init__(message)
        self.again = again


RunChild = Callable[[MeasureSpec, Callable[[], bool]], Awaitable[Measured]]
"""Measures in a process of its own, until the callable says that it must end. Raises NotMeasured."""


async def measure_in_child(spec: MeasureSpec, must_stop: Callable[[], bool], limit_s: float = LIMIT_S) -> Measured:
    """Measure in a process of its own, which is gone when this returns. Raises NotMeasured."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "agent.stage.benchmark",
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": "1"}, creationflags=NO_WINDOW,
        start_new_session=spec.stage.gentle,  # for a scheduling group of its own, see agent.stage.priority
    )  # fmt: skip
    if child.stdin is None or child.stdout is None or child.stderr is None:
        raise TypeError("A process was started without its pipes.")
    reading = asyncio.gather(_read(child.stdout), _read(child.stderr))
    try:
        child.stdin.write(encode_spec(spec))
        until_s = time.monotonic() + limit_s
        while not reading.done():
            await asyncio.wait({reading}, timeout=POLL_S)
            if must_stop():
                raise NotMeasured("this PC is needed for something else.", again=True)
            if time.monotonic() > until_s:
                raise NotMeasured(f"it took more than {limit_s:.0f} s.")
        answer, words = reading.result()
        log_words(log, "measuring", words)
        return msgspec.json.decode(answer, type=Measured)
    except msgspec.MsgspecError:
        code = await child.wait()
        raise NotMeasured(
            f"the process ended with code {code} and without an answer.", again=code == EXIT_YIELDED
        ) from None
    finally:
        # One that has said all ends by itself: to kill it then could take its exit code from whoever waits for it.
        if not reading.done() and child.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                child.kill()
        child.stdin.close()
        await child.wait()
        # The pipes end with the process; one that is not seen to its end leaves its transport open.
        await asyncio.gather(reading, return_exceptions=True)
        with contextlib.suppress(OSError):
            await child.stdin.wait_closed()


async def _read(stream: asyncio.StreamReader) -> bytes:
    """Read to the end, or as much as may be."""
    read = b""
    while len(read) <= MAX_ANSWER_BYTES and (part := await stream.read(MAX_ANSWER_BYTES)):
        read += part
    return read
