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
import functools
import logging
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

from PySide6.QtCore import QObject, Qt, Signal, Slot

from agent.control.client import ControlClient
from agent.control.errors import ControlError, ControlUnavailable, NotRunning, OrderRefused
from agent.control.protocol import Answer, Order, Refused, Told
from agent.tray import single

log = logging.getLogger(__name__)

RETRY_S = 2.0
STOP_WAIT_S = 5.0

OnAnswer = Callable[[Answer], None]
OnTold = Callable[[Told], None]


def _ignore(_: object) -> None:
    """What nobody wants to hear."""


async def _nothing_to_close() -> None:
    """The end of what never began."""


class Bridge(QObject):
    """Keeps a connection to the service of one data folder. Public methods and signals belong to the GUI thread."""

    status_came = Signal(object)
    """A Status."""
    lost = Signal(str)
    """The service does not answer: why, or an empty text when it simply does not run."""
    wished = Signal(str)
    """What a second start asked for: `show` or `enrol`."""
    _posted = Signal(object)

    def __init__(self, folder: Path, *, retry_s: float = RETRY_S, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._folder = folder
        self._retry_s = retry_s
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="tray bridge", daemon=True)
        # The three below belong to the bridge thread.
        self._client: ControlClient | None = None
        self._stopping = asyncio.Event()
        self._look_now = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        # Queued, always: whoever emits is in the other thread, and what is posted must run in this one.
        self._posted.connect(self._take, Qt.ConnectionType.QueuedConnection)

    def start(self) -> None:
        """Begin to look for the service."""
        self._thread.start()

    def stop(self) -> None:
        """Let go of the service and end the thread. Waits for it."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join(STOP_WAIT_S)
        elif not self._loop.is_closed():
            self._loop.close()

    def look_now(self) -> None:
        """Look for the service at once: somebody has just started it."""
        self._to_loop(self._look_now.set)

    def order(self, make: Callable[[int], Order], on_answer: OnAnswer = _ignore, on_told: OnTold = _ignore) -> None:
        """Give an order; `make` gets its id. The callbacks come on the GUI thread; a refusal is an answer, too."""
        self._to_loop(self._begin, make, on_answer, on_told)

    def _to_loop(self, call: Callable[..., object], *arguments: object) -> None:
        # Closed when the program ends, and then nobody waits for what comes of it.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(call, *arguments)

    @Slot(object)
    def _take(self, call: Callable[[], None]) -> None:
        call()

    # From here on: the bridge thread.

    def _post(self, function: Callable[..., object], *arguments: object) -> None:
        self._posted.emit(functools.partial(function, *arguments))

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._work())
        except Exception:  # the edge of the thread: without it the windows would wait for ever and not say why
            log.exception("The connection to the agent's service ended.")
        finally:
            self._loop.close()

    async def _work(self) -> None:
        close = await self._listen()
        try:
            await self._look_until_stopped()
        finally:
            await close()

    async def _listen(self) -> Callable[[], Awaitable[None]]:
        try:
            return await single.listen(self._folder, lambda wish: self._in_windows(self.wished.emit, wish))
        except ControlUnavailable as error:
            log.warning("A second start of the tray will not be heard: %s", error)
            return _nothing_to_close

    async def _in_windows(self, function: Callable[..., object], *arguments: object) -> None:
        """Call a function on the GUI thread, and wait until that thread has taken it up.

        Being there proves that it lives. What it then does may be to build a window, which takes its time.
        """
        heard = self._loop.create_future()

        def say_heard() -> None:
            if not heard.done():
                heard.set_result(None)

        def call() -> None:
            self._to_loop(say_heard)
            function(*arguments)

        self._post(call)
        await heard

    async def _look_until_stopped(self) -> None:
        looking = asyncio.create_task(self._keep_connected())
        stopping = asyncio.create_task(self._stopping.wait())
        await asyncio.wait({looking, stopping}, return_when=asyncio.FIRST_COMPLETED)
        tasks = {looking, stopping, *self._tasks}
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        if not looking.cancelled():
            looking.result()

    async def _keep_connected(self) -> None:
        told: str | None = None
        while True:
            self._look_now.clear()
            try:
                async with ControlClient.open(self._folder, "tray") as client:
                    self._client = client
                    told = None
                    async for status in client.statuses():
                        self._post(self.status_came.emit, status)
            except ControlError as error:
                why = "" if isinstance(error, NotRunning) else str(error)
                if why != told:
                    told = why
                    self._post(self.lost.emit, why)
            finally:
                self._client = None
            try:
                await asyncio.wait_for(self._look_now.wait(), self._retry_s)
            except TimeoutError:
                continue

    def _begin(self, make: Callable[[int], Order], on_answer: OnAnswer, on_told: OnTold) -> None:
        task = self._loop.create_task(self._carry(make, on_answer, on_told))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _connected(self) -> ControlClient:
        if self._client is None:
            raise NotRunning
        return self._client

    async def _carry(self, make: Callable[[int], Order], on_answer: OnAnswer, on_told: OnTold) -> None:
        answer: Answer
        try:
            client = self._connected()
            answer = await client.order(make(client.next_id()), lambda told: self._post(on_told, told))
        except OrderRefused as error:
            answer = Refused(0, error.code, str(error))
        except ControlError as error:
            answer = Refused(0, "failed", str(error))
        except Exception as error:  # the edge of a task nobody awaits: whoever gave the order hears of its end
            log.exception("An order could not be given.")
            answer = Refused(0, "failed", f"The order could not be given ({type(error).__name__}); see the log.")
        self._post(on_answer, answer)
