"""The one way between the window and the server: questions go out on a thread with an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing

from PySide6.QtCore import QObject

from agent.look.loop import Job, LoopThread
from console.access import Access
from console.chat.account import Account
from console.chat.client import ChatClient, Model
from console.chat.errors import AnswerFailed, ChatError
from console.chat.events import AnswerReader, Event
from console.chat.records import Facts, Message, Setup
from console.chat_link import ChatLink

FRAME_S = 0.04
"""Text that comes is handed over 25 times a second: more than that nobody sees."""

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
        """Look for the account that was kept; `then` gets it, or why its key cannot be had."""

        async def carry(job: Job) -> None:
            access, problem = None, None
            try:
                access = await self._account.load()
            except ChatError as error:
                problem = error
            if access is not None:
                await self._use(access)
            self.post(job.guard(then), access, problem)

        return self.begin(carry)

    def sign_in(
        self, link: ChatLink, then: Callable[[Access, list[Model], bool], object], failed: Callable[[ChatError], object]
    ) -> Job:
        """Try an account and keep it if it opens anything: `then` gets its models and whether the key could be kept."""

        async def carry(job: Job) -> None:
            try:
                access = await self._account.verify(link)
                await self._use(access)
                models = await self._known().models()
                kept = await self._account.keep(access)
            except ChatError as error:
                self.post(job.guard(failed), error)
            else:
                self.post(job.guard(then), access, models, kept)

        return self.begin(carry)

    def sign_out(self, then: Callable[[], object]) -> Job:
        """Forget the account."""

        async def carry(job: Job) -> None:
            await self.close()
            await self._account.forget()
            self.post(job.guard(then))

        return self.begin(carry)

    def models(self, then: Callable[[list[Model]], object], failed: Callable[[AnswerFailed], object]) -> Job:
        """Ask which models there are."""

        async def carry(job: Job) -> None:
            try:
                models = await self._known().models()
            except AnswerFailed as error:
                self.post(job.guard(failed), error)
            else:
                self.post(job.guard(then), models)

        return self.begin(carry)

    def ask(self, setup: Setup, messages: Sequence[Message], on_events: OnEvents, on_end: OnEnd) -> Job:
        """Ask; events come in bundles, then exactly one end, unless the job is cancelled: that ends the answer."""

        async def carry(job: Job) -> None:
            bundles = _Bundles(lambda events: self.post(job.guard(on_events), events))
            reader = AnswerReader(setup.model)
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

        return self.begin(carry)

    # From here on: the loop thread.

    async def close(self) -> None:
        """Close the connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def _use(self, access: Access) -> None:
        await self.close()
        self._client = ChatClient(access)

    def _known(self) -> ChatClient:
        if self._client is None:
            raise AnswerFailed("You are not signed in; sign in with a chat link or a key.", kind="key")
        return self._client


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
