"""The one way between the windows and the service: calls go out on a thread with an event loop.

bridge.ask(calls.agents(), self._show, self._fail)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

import httpx2
from PySide6.QtCore import QObject, Signal

from agent.look.loop import Job, LoopThread
from agent.threads import finish_in_thread
from console.access import Access
from console.call import Call, LineCall, Lines, answer_of, not_answered, refusal_of
from console.errors import ClientError, ServiceRefused, ServiceUnreachable

T = TypeVar("T")

EXPIRED = 401
LINES_AT_ONCE = 500


def _ignore(_: object) -> None:
    """What nobody wants to hear."""


class Bridge(LoopThread):
    """Carries calls out. Public methods and signals belong to the GUI thread; callbacks come on it."""

    lost = Signal(str)
    """The service does not answer, and why."""
    found = Signal()
    """The service answers, the first time or again."""
    expired = Signal(str)
    """The service does not take the token any more: somebody has to log in again."""

    def __init__(self, access: Access, parent: QObject | None = None) -> None:
        super().__init__("the console's connection", parent)
        self.access = access
        # Those below belong to the loop thread.
        self._http: httpx2.AsyncClient | None = None
        self._asks_as = access
        self._trusted_as_of: tuple[int, int] | None = None
        self._former: list[httpx2.AsyncClient] = []
        self._answers: bool | None = None

    def use(self, access: Access) -> None:
        """Ask there, and as this one, from now on; what is under way goes on with the former."""
        self.access = access
        self.to_loop(self._renew)

    def ask(
        self,
        call: Call[T],
        on_answer: Callable[[T], object] = _ignore,
        on_failed: Callable[[ClientError], object] = _ignore,
    ) -> Job:
        """Carry out a call. Exactly one of the callbacks comes, unless the job is cancelled before."""

        async def carry(job: Job) -> None:
            try:
                answer = await self._ask(call)
            except ClientError as error:
                self._fail(job, error, on_failed)
            else:
                self.post(job.guard(on_answer), answer)

        return self.begin(carry)

    def follow(
        self,
        call: LineCall[T],
        on_line: Callable[[T], object],
        on_end: Callable[[ClientError | None], object] = _ignore,
    ) -> Job:
        """Carry out a call that answers line by line; `on_end` gets None when it came to its end."""

        async def carry(job: Job) -> None:
            try:
                await self._follow(call, lambda line: self.post(job.guard(on_line), line))
            except ClientError as error:
                self._fail(job, error, on_end)
            else:
                self.post(job.guard(on_end), None)

        return self.begin(carry)

    def save(
        self,
        call: LineCall[bytes],
        path: Path,
        on_saved: Callable[[int], object] = _ignore,
        on_failed: Callable[[ClientError], object] = _ignore,
    ) -> Job:
        """Write the lines of an answer to a file; `on_saved` gets how many. An old file stays until all are there."""

        async def carry(job: Job) -> None:
            part = path.with_name(f".{path.name}.part")
            try:
                count = await self._save(call, part)
                await finish_in_thread(lambda: part.replace(path))
            except ClientError as error:
                self._fail(job, error, on_failed)
            except OSError as error:
                said = ClientError(f"{path} cannot be written ({error.strerror}); choose another folder.")
                self._fail(job, said, on_failed)
            else:
                self.post(job.guard(on_saved), count)
            finally:
                part.unlink(missing_ok=True)

        return self.begin(carry)

    def _expire(self, asked_as: Access, why: str) -> None:
        if asked_as == self.access:  # and not that of somebody who signed in again meanwhile
            self.expired.emit(why)

    # From here on: the loop thread.

    async def _save(self, call: LineCall[bytes], part: Path) -> int:
        lines: list[bytes] = []
        with await finish_in_thread(lambda: part.open("wb"), release=lambda file: file.close()) as file:
            count = 0

            def keep(line: bytes) -> None:
                nonlocal count
                count += 1
                lines.append(line + b"\n")
                if len(lines) >= LINES_AT_ONCE:
                    file.writelines(lines)
                    lines.clear()

            await self._follow(call, keep)
            await finish_in_thread(lambda: file.writelines(lines))
        return count

    async def close(self) -> None:
        """Close the connections."""
        for http in (*self._former, self._http):
            if http is not None:
                await http.aclose()

    def _renew(self) -> None:
        self._put_aside()
        self._answers = None

    def _put_aside(self) -> None:
        if self._http is not None:
            # Not closed before the end: questions may be under way with it.
            self._former.append(self._http)
            self._http = None

    def _client(self) -> httpx2.AsyncClient:
        """Return the client, another one once the certificate file is another. Raises ClientError."""
        as_of = self.access.authority_as_of()
        if as_of != self._trusted_as_of:
            self._put_aside()
            self._trusted_as_of = as_of
        if self._http is None:
            access = self.access  # once: the GUI thread may change it meanwhile
            self._http = httpx2.AsyncClient(
                base_url=access.address(), headers=access.headers(), verify=access.trust(), trust_env=False
            )
            self._asks_as = access
        return self._http

    async def _ask(self, call: Call[T]) -> T:
        timeout = httpx2.Timeout(10.0, read=call.silence_s)
        http, asked_as = self._client(), self._asks_as
        try:
            response = await http.request(call.method, call.path, content=call.body, timeout=timeout)
        except httpx2.RequestError as error:
            raise not_answered(self.access.url, error) from None
        self._heard()
        if response.is_error:
            raise self._refused(asked_as, response.status_code, response.content)
        return answer_of(self.access.url, call, response.content)

    async def _follow(self, call: LineCall[T], on_line: Callable[[T], None]) -> None:
        timeout = httpx2.Timeout(10.0, read=call.silence_s)
        http, asked_as = self._client(), self._asks_as
        last: T | None = None
        try:
            async with http.stream(call.method, call.path, content=call.body, timeout=timeout) as response:
                self._heard()
                if response.is_error:
                    raise self._refused(asked_as, response.status_code, await response.aread())
                lines = Lines()

                def read(whole: Iterable[bytes]) -> None:
                    nonlocal last
                    for line in whole:
                        last = answer_of(self.access.url, call, line)
                        on_line(last)

                async for data in response.aiter_bytes():
                    read(lines.take(data))
                read(lines.end())
        except httpx2.RequestError as error:
            raise not_answered(self.access.url, error) from None
        if not call.ends(last):
            raise ServiceUnreachable(call.cut_off)

    def _refused(self, asked_as: Access, status: int, body: bytes) -> ServiceRefused:
        refused = refusal_of(self.access.url, status, body)
        if status == EXPIRED:
            self.post(self._expire, asked_as, str(refused))
        return refused

    def _heard(self) -> None:
        if not self._answers:
            self._answers = True
            self.post(self.found.emit)

    def _fail(self, job: Job, error: ClientError, on_failed: Callable[[ClientError], object]) -> None:
        if isinstance(error, ServiceUnreachable) and self._answers is not False:
            self._answers = False
            self.post(self.lost.emit, str(error))
        self.post(job.guard(on_failed), error)
