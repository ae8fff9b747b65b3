"""The control link and the data link of one session: dialled, used and closed together. Event loop only.

The console counts an agent as lost with the first of them that drops.
"""

from __future__ import annotations

import asyncio

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from agent.link.channel import Dialler, link_error
from agent.link.closing import FrameRefused, LinkCut, LinkDown, LinkStalled
from agent.link.frames import FrameError
from agent.link.messages import (
    CONTROL_PATH,
    DATA_PATH,
    FromAgent,
    FromConsole,
    Hello,
    MessageError,
    Welcome,
    decode_from_console,
    encode_message,
)
from agent.link.sockets import Unsendable, post

WELCOME_WAIT_S = 20.0

LINK_FAILURES = (ConnectionClosed, FrameError, MessageError, TimeoutError)
"""What reading from a link raises when the session is over; `as_link_down` makes one error of them."""


class SessionLinks:
    """Open them with `open`. `broken` says why this side gave them up, if it did."""

    def __init__(self, control: ClientConnection, data: ClientConnection, welcome: Welcome) -> None:
        self._control = control
        self.data = data
        self.welcome = welcome
        """What the console greeted with."""
        self.broken: LinkDown | None = None

    @classmethod
    async def open(cls, dialler: Dialler, hello: Hello) -> SessionLinks:
        """Dial both links and introduce this PC. Raises LinkDown; nothing stays open then."""
        control = await dialler.dial(CONTROL_PATH)
        try:
            await control.send(encode_message(hello))
            async with asyncio.timeout(WELCOME_WAIT_S):
                welcome = _as_welcome(await control.recv(decode=False))
            data = await dialler.dial(DATA_PATH)
        except LINK_FAILURES as error:
            await control.close()
            raise as_link_down(error) from error
        except BaseException:
            await control.close()
            raise
        return cls(control, data, welcome)

    @property
    def host(self) -> str:
        """The address of this PC that leads to the console."""
        return str(self._control.local_address[0])

    async def heard(self) -> FromConsole:
        """Wait for the next control message. Raises one of LINK_FAILURES."""
        return decode_from_console(await self._control.recv(decode=False))

    def say(self, message: FromAgent) -> bool:
        """Send a control message without waiting; False if it does not go any more."""
        return self._post(self._control, encode_message(message))

    def send_frame(self, data: bytes) -> None:
        """Send a frame without waiting."""
        self._post(self.data, data)

    async def close(self, code: int, reason: str) -> None:
        """Close both, saying why."""
        await asyncio.gather(self.data.close(code, reason), self._control.close(code, reason))

    def _post(self, link: ClientConnection, data: bytes) -> bool:
        """Send without waiting; a link that does not take it (False) ends the session through its reader."""
        try:
            post(link, data)
        except Unsendable as error:
            if error.stalled and self.broken is None:
                self.broken = LinkStalled("The console reads too slowly; the link is dialled again.", "slow_reader")
                link.transport.abort()
            return False
        return True


def as_link_down(error: Exception) -> LinkDown:
    """Say with one kind of error why a session is over, given one of LINK_FAILURES."""
    if isinstance(error, ConnectionClosed):
        return link_error(error)
    if isinstance(error, FrameError | MessageError):
        return FrameRefused(f"The console sent what this agent cannot read ({error}); update the agent.", "bad_frame")
    return LinkCut("The console did not answer in time; it is tried again.", "timeout")


def _as_welcome(data: bytes) -> Welcome:
    message = decode_from_console(data)
    if not isinstance(message, Welcome):
        raise MessageError("The console's first message is not Welcome.")
    return message
