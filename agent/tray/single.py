"""One tray for each user and data folder: a second start hands its wish to the first and ends.

A lock says who is the first; it goes with its process, however that ends. A socket for this user alone carries the
wish. The first one answers from the thread of its windows, so that one whose windows hang is found out.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import sys
from collections.abc import Awaitable, Callable
from enum import Enum
from pathlib import Path

import psutil

from agent.control.endpoint import Endpoint, NamedPipe, UnixSocket, runtime_folder
from agent.control.errors import ControlUnavailable, NotRunning
from agent.folder_lock import FolderBusy, FolderLock

log = logging.getLogger(__name__)

ANSWER_WAIT_S = 2.0
END_WAIT_S = 2.0
RETRY_S = 0.05
WISHES = ("show", "enrol")
_OK = b"ok\n"

OnWish = Callable[[str], Awaitable[None]]


class Start(Enum):
    """What a start came to."""

    FIRST = "first"
    HANDED_OVER = "handed over"
    OTHER_HANGS = "other hangs"


class SingleInstance:
    """The place of the one tray of a data folder. Any one thread; blocks for a few seconds at most."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = FolderLock(folder / "tray.lock")
        self._id_file = folder / "tray.pid"

    def begin(self, wish: str = "show") -> Start:
        """Be the first, or hand `wish` to the one who is."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._lock.acquire()
            self._id_file.write_text(str(os.getpid()), "ascii")
        except FolderBusy:
            return Start.HANDED_OVER if asyncio.run(hand_over(self._folder, wish)) else Start.OTHER_HANGS
        except OSError as error:
            # A full disk is no reason to show the owner nothing.
            log.warning("%s cannot be written (%s); a second tray may start.", self._folder, error.strerror)
        return Start.FIRST

    def end(self) -> None:
        """Let another one be the first."""
        self._lock.release()

    def end_other(self) -> bool:
        """End the tray that hangs; returns whether it is gone."""
        try:
            other = psutil.Process(int(self._id_file.read_text("ascii")))
            # A later process may have been given the same id.
            if other.create_time() > self._id_file.stat().st_mtime + 1:
                return True
            other.terminate()
            try:
                other.wait(END_WAIT_S)
            except psutil.TimeoutExpired:
                other.kill()
                other.wait(END_WAIT_S)
        except psutil.NoSuchProcess:
            return True
        except (OSError, ValueError, psutil.Error) as error:
            log.warning("The tray that does not answer cannot be ended (%s).", error)
            return False
        return True


def endpoint_of_tray(folder: Path) -> Endpoint:
    """Return the socket of the tray of a data folder."""
    name = "fallow-tray-" + hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:16]
    if sys.platform == "win32":
        return NamedPipe(rf"\\.\pipe\{name}")
    return UnixSocket(runtime_folder() / f"{name}.sock")


async def listen(folder: Path, on_wish: OnWish) -> Callable[[], Awaitable[None]]:
    """Take wishes of later starts; the result ends that. Raises ControlUnavailable.

    `on_wish` returns when the windows have heard it. Only for who is the first.
    """

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(ANSWER_WAIT_S):
                wish = (await reader.readline()).decode("ascii", "replace").strip()
                if wish in WISHES:
                    await on_wish(wish)
                    writer.write(_OK)
                    await writer.drain()
        except (TimeoutError, ValueError, OSError) as error:
            log.info("A wish of another start was not heard (%s).", type(error).__name__)
        finally:
            writer.close()

    return await endpoint_of_tray(folder).listen(serve)


async def hand_over(folder: Path, wish: str, wait_s: float | None = None) -> bool:
    """Give a wish to the first tray; returns whether it took it in time."""
    try:
        async with asyncio.timeout(ANSWER_WAIT_S if wait_s is None else wait_s):
            while True:
                try:
                    reader, writer = await endpoint_of_tray(folder).connect()
                    break
                except NotRunning:
                    await asyncio.sleep(RETRY_S)  # it has the lock and is about to listen
            try:
                writer.write(f"{wish}\n".encode())
                return await reader.readline() == _OK
            finally:
                writer.close()
    except (TimeoutError, ValueError, OSError, ControlUnavailable) as error:
        log.info("The tray that runs already did not answer (%s).", type(error).__name__)
        return False
