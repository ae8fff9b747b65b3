"""The one way between the window and the server: questions go out on a thread with an event loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from contextlib import aclosing
from typing import Any, TypeVar

from PySide6.QtCore import QObject

from agent.look.loop import Job, LoopThread
from agent.threads import finish_in_thread
from console.access import Access
from console.chat.account import Account
from console.chat.client import ChatClient, Model
from console.chat.errors import AnswerFailed, ChatError
from console.chat.events import AnswerReader, Event
from console.chat.records import Facts, Message, Setup
from console.chat_link import ChatLink

log = logging.getLogger(__name__)

FRAME_S = 0.04
"""Text that comes is handed over 25 times a second: more than that nobody sees."""

T = TypeVar("T")
OnEvents = Callable[[list[Event]], object]
OnEnd = Callable[[Facts, AnswerFailed | None], object]


class ChatBridge(LoopThread):
    """Public methods belong to the GUI thread; callbacks come on it."""

    def __init__(self, account: Account, parent: QObject | None = None) -> None:
        super().__init__("the chat's connection", parent)
        self._account = account
        # Belongs to the loop thread.
        self._client: ChatClient | None = None

    def load_account(self, then: Callable[[Access | None, ChatError | None], object]) -> Job:
        """Look for the account that was kept; `then` gets it, or why it cannot be had."""

        async def carry(job: Job) -> None:
            access, problem = None, None
            try:
                access = await self._account.load()
                if access is not None:
                    await self._use(ChatClient(access))
            except ChatError as error:
                access, problem = None, error
            self.post(job.guard(then), access, problem)

        return self._begin_told(carry, lambda error: then(None, error))

    def sign_in(
        self, link: ChatLink, then: Callable[[Access, list[Model], str], object], failed: Callable[[ChatError], object]
    ) -> Job:
        """Try an account, and change to it and keep it if it opens anything; before that, all stays as it is.

        `then` gets its models and why it could not be kept (empty: it is).
        """

        async def carry(job: Job) -> None:
            try:
                access = await self._account.verify(link)
                client = ChatClient(access)
                models = await _models_or_closed(client)
            except ChatError as error:
                self.post(job.guard(failed), error)
                return
            await self._use(client)
            self.post(job.guard(then), access, models, await self._account.keep(access))

        return self._begin_told(carry, failed)

    def sign_out(self, then: Callable[[str], object]) -> Job:
        """Forget the account; `then` gets what of it stays, and what to do about that (empty: nothing)."""

        async def carry(job: Job) -> None:
            await self.close()
            self.post(job.guard(then), await self._account.forget())

        return self._begin_told(carry, lambda error: then(str(error)))

    def models(self, then: Callable[[list[Model]], object], failed: Callable[[AnswerFailed], object]) -> Job:
        """Ask which models there are."""

        async def carry(job: Job) -> None:
            try:
                models = await self._known().models()
            except AnswerFailed as error:
                self.post(job.guard(failed), error)
            else:
                self.post(job.guard(then), models)

        return self._begin_told(carry, failed)

    def ask(self, setup: Setup, messages: Sequence[Message], on_events: OnEvents, on_end: OnEnd) -> Job:
        """Ask; events come in bundles, then exactly one end, unless the job is cancelled: that ends the answer."""
        reader = AnswerReader(setup.model)

        async def carry(job: Job) -> None:
            bundles = _Bundles(lambda events: self.post(job.guard(on_events), events))
            problem: AnswerFailed | None = None
            try:
                async with aclosing(self._known().ask(setup, messages, reader)) as events:
                    async for event in events:
                        bundles.add(event)
            except AnswerFailed as error:
                problem = error
            finally:
                bundles.flush()
            self.post(job.guard(on_end), reader.facts, problem)

        return self._begin_told(carry, lambda error: on_end(reader.facts, error))

    def in_thread(
        self, work: Callable[[], T], then: Callable[[T], object], failed: Callable[[ChatError], object]
    ) -> Job:
        """Do what waits for a disk or computes for long, and see it to its end; `then` gets what comes of it."""

        async def carry(job: Job) -> None:
            try:
                result = await finish_in_thread(work)
            except ChatError as error:
                self.post(job.guard(failed), error)
            else:
                self.post(job.guard(then), result)

        return self._begin_told(carry, failed)

    def _begin_told(
        self, carry: Callable[[Job], Coroutine[Any, Any, None]], failed: Callable[[AnswerFailed], object]
    ) -> Job:
        """Begin work of which `failed` hears, too, when it fails in a way nobody has thought of: nothing waits on."""

        async def watched(job: Job) -> None:
            try:
                await carry(job)
            except Exception as error:  # the edge of a task: the log has the cause, the window that there is one
                log.exception("Work of the chat's connection failed unexpectedly.")
                self.post(job.guard(failed), _unexpected(error))

        return self.begin(watched)

    # From here on: the loop thread.

    async def close(self) -> None:
        """Close the connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def _use(self, client: ChatClient) -> None:
        await self.close()
        self._client = client

    def _known(self) -> ChatClient:
        if self._client is None:
            raise AnswerFailed("You are not signed in; sign in with a chat link or a key.", kind="key")
        return self._client


async def _models_or_closed(client: ChatClient) -> list[Model]:
    """Ask a new connection for its models; one that gives none is closed."""
    try:
        return await client.models()
    except BaseException:
        await client.close()
        raise


def _unexpected(error: Exception) -> AnswerFailed:
    return AnswerFailed(f"This failed for an unknown reason ({type(error).__name__}); try again.", kind="broken")


class _Bundles:
    """Hands events over at most once in a frame; the first one at once."""

    def __init__(self, hand_over: OnEvents) -> None:
        self._hand_over = hand_over
        self._events: list[Event] = []
        self._timer: asyncio.TimerHandle | None = None
        self._last_s = float("-inf")

    def add(self, event: Event) -> None:
        self._events.append(event)
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(max(loop.time(), self._last_s + FRAME_S), self.flush)

    def flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._events:
            events, self._events = self._events, []
            self._last_s = asyncio.get_running_loop().time()
            self._hand_over(events)
