"""A whole load test: one level of users after the other; what was measured is kept when it is ended early."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable

from console.access import Access
from console.bench.client import LoadClient
from console.bench.figures import Figures
from console.bench.load import Level, Load
from console.bench.mix import Mix
from console.errors import ClientError

LOOK_S = 0.25

OnProgress = Callable[[Level, float], None]
"""Hears the level that runs, and the share of the whole that is over."""


class Measured:
    """What a test has measured so far."""

    def __init__(self) -> None:
        self.levels: list[Figures] = []
        self.interrupted = False


async def measure(access: Access, load: Load, mix: Mix, on_progress: OnProgress) -> Measured:
    """Run a load test. Cancelled (Ctrl-C), it returns what was measured by then.

    Raises ClientError when no request of a warm-up is answered, with what the server said.
    """
    measured, numbers = Measured(), itertools.count()
    async with LoadClient(access, max(load.users)) as client:
        for place, users in enumerate(load.users):
            level = Level(client, load, mix, numbers, users)
            running = asyncio.create_task(level.run(), name=f"level of {users}")
            try:
                while not running.done():
                    await asyncio.wait((running,), timeout=LOOK_S)
                    on_progress(level, (place + level.done) / len(load.users))
                running.result()
            except asyncio.CancelledError:
                # Whoever pressed Ctrl-C wants to see what there is; the next one ends the program.
                measured.interrupted = True
                if (task := asyncio.current_task()) is not None:
                    task.uncancel()
            finally:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)
            if level.warming and not measured.interrupted:
                raise ClientError(f"No request was answered. {level.asked[0].message}")
            if not level.warming:
                measured.levels.append(level.figures())
            if measured.interrupted:
                break
    return measured
