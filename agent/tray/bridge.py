"""The one way between the windows and the service: a thread with an event loop that holds the control socket.

GUI thread                          bridge thread
order(...)           ────────────►  ControlClient.order
on_answer(answer)    ◄────────────  answer, or Refused in its place
status_came(status)  ◄────────────  every Status
lost(why)            ◄────────────  no service; it is looked for again every RETRY_S
wished(wish)         ◄────────────  what a second start of the tray wants
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QObject, Signal

from agent.control.client import ControlClient
from agent.control.errors import ControlError, ControlUnavailable, NotRunning, OrderRefused
from agent.control.protocol import Answer, Order, Refused, Told
from agent.look.loop import Job, LoopThread
from agent.tray import single

log = logging.getLogger(__name__)

RETRY_S = 2.0

OnAnswer = Callable[[Answer], None]
OnTold = Callable[[Told], None]


def _ignore(_: object) -> None:
    """What nobody wants to hear."""


class Bridge(LoopThread):
    """Keeps a connection to the service of one data folder. Public methods and signals belong to the GUI thread."""

    status_came = Signal(object)
    """A Status."""
    lost = Signal(str)
    """The service does not answer: why, or an empty text when it simply does not run."""
    wished = Signal(str)
    """What a second start asked for: `show` or `enrol`."""

    def __init__(self, folder: Path, *, retry_s: float = RETRY_S, parent: QObject | None = None) -> None:
        super().__init__("the tray's connection", parent)
        self._folder = folder
        self._retry_s = retry_s
        # The two below belong to the loop thread.
        self._client: ControlClient | None = None
        self._look_now = asyncio.Event()

    def look_now(self) -> None:
        """Look for the service at once: somebody has just started it."""
        self.to_loop(self._look_now.set)

    def order(self, make: Callable[[int], Order], on_answer: OnAnswer = _ignore, on_told: OnTold = _ignore) -> None:
        """Give an order; `make` gets its id. The callbacks come on the GUI thread; a refusal is an answer, too."""

        async def carry(_: Job) -> None:
            await self._carry(make, on_answer, on_told)

        self.begin(carry)

    # From here on: the loop thread.

    async def work(self) -> None:
        """Hear later starts of the tray, and keep connected."""
        async with contextlib.AsyncExitStack() as stack:
            try:
                stack.push_async_callback(await single.listen(self._folder, self._hear_wish))
            except ControlUnavailable as error:
                log.warning("A second start of the tray will not be heard: %s", error)
            await self._keep_connected()

    async def _hear_wish(self, wish: str) -> None:
        """Tell the windows a wish, and wait until their thread has taken it up.

        Being there proves that it lives. What it then does may be to build a window, which takes its time.
        """
        heard = asyncio.get_running_loop().create_future()

        def say_heard() -> None:
            if not heard.done():
                heard.set_result(None)

        def call() -> None:
            self.to_loop(say_heard)
            self.wished.emit(wish)

        self.post(call)
        await heard

    async def _keep_connected(self) -> None:
        told: str | None = None
        while True:
            self._look_now.clear()
            try:
                async with ControlClient.open(self._folder, "tray") as client:
                    self._client = client
                    told = None
                    async for status in client.statuses():
                        self.post(self.status_came.emit, status)
            except ControlError as error:
                why = "" if isinstance(error, NotRunning) else str(error)
                if why != told:
                    told = why
                    self.post(self.lost.emit, why)
            finally:
                self._client = None
            try:
                await asyncio.wait_for(self._look_now.wait(), self._retry_s)
            except TimeoutError:
                continue

    def _connected(self) -> ControlClient:
        if self._client is None:
            raise NotRunning
        return self._client

    async def _carry(self, make: Callable[[int], Order], on_answer: OnAnswer, on_told: OnTold) -> None:
        answer: Answer
        try:
            client = self._connected()
            answer = await client.order(make(client.next_id()), lambda told: self.post(on_told, told))
        except OrderRefused as error:
            answer = Refused(0, error.code, str(error))
        except ControlError as error:
            answer = Refused(0, "failed", str(error))
        except Exception as error:  # the edge of a task nobody awaits: whoever gave the order hears of its end
            log.exception("An order could not be given.")
            answer = Refused(0, "failed", f"The order could not be given ({type(error).__name__}); see the log.")
        self.post(on_answer, answer)
