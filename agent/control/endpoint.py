"""Where the control socket of a data folder is, and who is at its other end. On Windows it is a named pipe.

Only the same user gets through: by the mode of the socket and its folder, and by the credentials of the peer, which are
checked on both sides because a name can be taken by somebody else first.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import socket
import stat
import struct
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from pathlib import Path

import psutil

from agent.control.errors import ControlUnavailable, NotRunning

log = logging.getLogger(__name__)

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
READ_LIMIT_BYTES = 256 * 1024
LONGEST_FOLDER = 60
"""A socket's path may have 103 bytes on macOS and 107 on Linux, the name included."""
_LOCAL_PEERCRED = 1
_XUCRED = struct.Struct("II")
"""The beginning of BSD's `struct xucred`: version, user id."""


class Endpoint(ABC):
    """One data folder's control socket. Event loop only."""

    @abstractmethod
    async def listen(self, serve: Serve) -> Callable[[], Awaitable[None]]:
        """Let clients of the same user in; the result ends that. Raises ControlUnavailable.

        Whoever calls this holds the lock of the data folder, so what is left there belongs to nobody.
        """

    @abstractmethod
    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Reach the running agent. Raises NotRunning or ControlUnavailable."""


def endpoint_of(folder: Path) -> Endpoint:
    """Return the control socket that belongs to a data folder."""
    name = "fallow-agent-" + hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:16]
    if sys.platform == "win32":
        return NamedPipe(rf"\\.\pipe\{name}")
    return UnixSocket(runtime_folder() / f"{name}.sock")


def runtime_folder() -> Path:
    """Return the folder for sockets of this user: `XDG_RUNTIME_DIR`, or a private one beside it. May not exist yet."""
    given = os.environ.get("XDG_RUNTIME_DIR", "")
    if given and len(given) <= LONGEST_FOLDER and _is_private(Path(given)):
        return Path(given)
    # Not the data folder, whose path may be long.
    return Path(tempfile.gettempdir()) / f"fallow-agent-{_own_id()}"


class UnixSocket(Endpoint):
    """A Unix socket of mode 0600 in a folder of the user."""

    def __init__(self, path: Path) -> None:
        self.path = path

    async def listen(self, serve: Serve) -> Callable[[], Awaitable[None]]:
        folder = self.path.parent
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
            if not _is_private(folder):
                raise ControlUnavailable(f"{folder} is not a private folder of this user; delete it.")
            server = await asyncio.start_unix_server(
                lambda reader, writer: _if_own(serve, reader, writer), sock=self._bind(), limit=READ_LIMIT_BYTES
            )
        except OSError as error:
            raise ControlUnavailable(f"The control socket {self.path} cannot be opened ({error.strerror}).") from None

        async def close() -> None:
            server.close()
            with contextlib.suppress(OSError):
                self.path.unlink()

        return close

    def _bind(self) -> socket.socket:
        self.path.unlink(missing_ok=True)
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            # Before bind: there must be no moment in which others may connect.
            with contextlib.suppress(OSError):  # macOS refuses that of a socket; there the folder keeps others out
                os.fchmod(listening.fileno(), 0o600)
            listening.bind(str(self.path))
            self.path.chmod(0o600)
            listening.listen(16)
        except BaseException:
            listening.close()
            raise
        return listening

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        try:
            reader, writer = await asyncio.open_unix_connection(str(self.path), limit=READ_LIMIT_BYTES)
        except (FileNotFoundError, ConnectionRefusedError):
            raise NotRunning from None
        except OSError as error:
            raise ControlUnavailable(f"The agent cannot be reached ({error.strerror}); start it again.") from None
        if not is_own_peer(writer):
            writer.close()
            raise ControlUnavailable(f"Another user listens at {self.path}; delete it and start the agent again.")
        return reader, writer


class NamedPipe(Endpoint):
    """A named pipe. Its default rights let only its creator, administrators and the system write to it."""

    def __init__(self, name: str) -> None:
        self.name = name

    async def listen(self, serve: Serve) -> Callable[[], Awaitable[None]]:
        loop = asyncio.get_running_loop()

        def protocol() -> asyncio.StreamReaderProtocol:
            reader = asyncio.StreamReader(limit=READ_LIMIT_BYTES)
            return asyncio.StreamReaderProtocol(reader, lambda _, writer: _if_own(serve, reader, writer))

        try:
            # Only the proactor loop, Windows' default, has pipes.
            servers = await loop.start_serving_pipe(protocol, self.name)  # type: ignore[attr-defined]
        except OSError as error:
            raise ControlUnavailable(f"The control pipe {self.name} cannot be opened ({error.strerror}).") from None

        async def close() -> None:
            for server in servers:
                server.close()

        return close

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=READ_LIMIT_BYTES)
        protocol = asyncio.StreamReaderProtocol(reader)
        try:
            transport, _ = await loop.create_pipe_connection(lambda: protocol, self.name)  # type: ignore[attr-defined]
        except FileNotFoundError:
            raise NotRunning from None
        except OSError as error:
            raise ControlUnavailable(f"The agent cannot be reached ({error.strerror}); start it again.") from None
        writer = asyncio.StreamWriter(transport, protocol, reader, loop)
        if not is_own_peer(writer, server=True):
            writer.close()
            raise ControlUnavailable("Another user's program answers for the agent; restart this PC.")
        return reader, writer


async def _if_own(serve: Serve, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    if is_own_peer(writer):
        await serve(reader, writer)
        return
    log.warning("A program of another user was turned away from the control socket.")
    writer.close()


def is_own_peer(writer: asyncio.StreamWriter, *, server: bool = False) -> bool:
    """Whether the program at the other end runs as this user; False where that cannot be told.

    `server` says which end of a named pipe the other one is.
    """
    try:
        pipe = writer.get_extra_info("pipe")
        if pipe is not None:
            return _pipe_user(pipe.fileno(), server=server) == psutil.Process().username()
        return _socket_user(writer.get_extra_info("socket")) == _own_id()
    except (OSError, AttributeError, struct.error, psutil.Error) as error:
        log.warning("Nobody knows who is at the control socket (%s).", error)
        return False


def _socket_user(connected: socket.socket) -> int:
    if sys.platform == "linux":
        _, user, _ = struct.unpack("3i", connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    else:
        _, user = _XUCRED.unpack_from(connected.getsockopt(0, _LOCAL_PEERCRED, 76))
    return int(user)


def _pipe_user(handle: int, *, server: bool) -> str:
    import ctypes

    kernel = ctypes.WinDLL("kernel32", use_last_error=True)  # type: ignore[attr-defined]
    ask = kernel.GetNamedPipeServerProcessId if server else kernel.GetNamedPipeClientProcessId
    process_id = ctypes.c_ulong()
    if not ask(ctypes.c_void_p(handle), ctypes.byref(process_id)):
        raise OSError("the pipe does not tell its peer")
    return psutil.Process(process_id.value).username()


def _is_private(folder: Path) -> bool:
    try:
        found = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == _own_id() and not found.st_mode & 0o077


def _own_id() -> int:
    return os.getuid() if sys.platform != "win32" else 0
