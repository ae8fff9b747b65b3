"""Asking the console which PCs hold files. Event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import msgspec
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from agent.link.bulk import Holder, Holders, Locate
from agent.link.closing import LinkDown
from agent.link.frames import Frame, FrameError, FrameType, decode, encode
from agent.link.parsing import UNREADABLE

LOCATE_WAIT_S = 10.0

DialBulk = Callable[[], Awaitable[ClientConnection]]


class CannotLocate(Exception):
    """The console does not say, in time or in words that are understood; the text is a clause."""


async def locate(dial: DialBulk, sha256: Sequence[str]) -> list[Holder]:
    """Ask which PCs hold these files; they are named with addresses and tickets. Raises CannotLocate."""
    table = msgspec.msgpack.encode(Locate(list(sha256)))
    try:
        async with asyncio.timeout(LOCATE_WAIT_S), await dial() as link:
            await link.send(encode(Frame(FrameType.LOCATE, 0, 0, 0, 0, 0, table, None)))
            frame = decode(await link.recv(decode=False))
        holders = msgspec.msgpack.decode(frame.table, type=Holders).holders
    except (ConnectionClosed, LinkDown, TimeoutError, FrameError, *UNREADABLE) as error:
        raise CannotLocate(str(error) or type(error).__name__) from None
    return [holder for holder in holders if all(0 <= place < len(sha256) for place in holder.files)]
