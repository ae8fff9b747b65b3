"""The agent's handle on a stage's child process: start it, exchange frames with it, hear of its end, end it.

Everything here belongs to one event loop and never blocks it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import subprocess
import sys
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from agent.children import NO_WINDOW
from agent.link.cutter import FrameCutter
from agent.link.frames import Frame, FrameError, FrameType, decode
from agent.link.parsing import UNREADABLE
from agent.stage.errors import StageGone, StageLoadError
from agent.stage.pipes import encode_spec, widen
from agent.stage.types import Nack, StageReport, StageSpec

logger = logging.getLogger(__name__)

LOAD_TIMEOUT_S = 300.0
CLOSE_GRACE_S = 1.0
"""How long a child may take to end after its stdin closed, before it is killed."""

WORKER = "agent.stage.worker"
"""The module that a child runs; drills put one in its place that makes mistakes on demand."""

STDERR_LINES = 20
WRITE_HIGH_BYTES = 8 << 20

OnFrame = Callable[[bytes], None]
OnExit = Callable[[str], None]


class _Pipes(asyncio.SubprocessProtocol):
    """Cuts the child's output into frames as it arrives: no task switch between the pipe and the callback."""

    def __init__(self) -> None:
        self.frames = FrameCutter(lambda _: None)
        self.stderr: deque[str] = deque(maxlen=STDERR_LINES)
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.broken = ""
        self._stderr_rest = b""
        self._writable = asyncio.Event()
        self._writable.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def pipe_data_received(self, fd: int, data: bytes | str) -> None:
        raw = data if isinstance(data, bytes) else data.encode()
        if fd != 1:
            self._keep_stderr(raw)
            return
        try:
            self.frames.feed(raw)
        except FrameError as error:
            self.broken = f"The stage's child process wrote bytes that are not a frame: {error}"
            self.kill()

    def _keep_stderr(self, data: bytes) -> None:
        *lines, self._stderr_rest = (self._stderr_rest + data).split(b"\n")
        self._stderr_rest = self._stderr_rest[-4096:]
        for line in lines:
            text = line.decode(errors="replace").rstrip()[:500]
            self.stderr.append(text)
            logger.info("stage: %s", text)

    def stderr_tail(self) -> str:
        rest = self._stderr_rest.decode(errors="replace").strip()
        lines = [line for line in [*self.stderr, rest] if line]
        return " | ".join(lines[-5:])[-800:]

    def process_exited(self) -> None:
        """Wait for the pipes too: their last bytes may still be on the way."""

    def connection_lost(self, exc: Exception | None) -> None:
        self._writable.set()
        if not self.ended.done():
            self.ended.set_result(None)

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    @property
    def is_writable(self) -> bool:
        return self._writable.is_set()

    async def writable(self) -> None:
        await self._writable.wait()

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.transport.kill()

    @property
    def transport(self) -> asyncio.SubprocessTransport:
        transport = self._transport
        if not isinstance(transport, asyncio.SubprocessTransport):
            raise TypeError(f"A subprocess has a {type(transport).__name__}.")
        return transport


class StageProcess:
    """A loaded stage in its child process. Made by `start`; always `close` it."""

    def __init__(self, pipes: _Pipes, spec: StageSpec, report: StageReport, on_exit: OnExit) -> None:
        self.spec, self.report = spec, report
        self._pipes = pipes
        self._on_exit = on_exit
        self._closing = False
        pipes.ended.add_done_callback(self._ended)

    @classmethod
    async def start(
        cls, spec: StageSpec, *, on_frame: OnFrame, on_exit: OnExit, timeout_s: float = LOAD_TIMEOUT_S
    ) -> StageProcess:
        """Start a child and wait until its stage is loaded and probed.

        `on_frame` gets every whole frame the stage sends, `on_exit` the cause when the child ends without `close`;
        both are called on the loop and must not block. Raises StageLoadError with the child's own code, or `died` or
        `load` (timeout). A cancelled start leaves no child.
        """
        pipes = await _spawn(gentle=spec.gentle)
        try:
            report = await _await_report(pipes, spec, timeout_s)
        except BaseException:
            await _end(pipes)
            raise
        pipes.frames.on_frame = on_frame
        return cls(pipes, spec, report, on_exit)

    @property
    def pid(self) -> int:
        """The child's process id."""
        return int(self._pipes.transport.get_pid())

    @property
    def running(self) -> bool:
        """Whether the child can still answer."""
        return not self._closing and not self._pipes.ended.done()

    def write(self, frame: bytes) -> bool:
        """Pass one whole frame to the stage; False: the pipe is full, await `writable`. Raises StageGone."""
        if not self.running:
            raise StageGone("The stage's child process has ended; load the stage again.")
        _stdin(self._pipes).write(frame)
        return self._pipes.is_writable

    async def writable(self) -> None:
        """Wait until the pipe takes frames again, or the child has ended."""
        await self._pipes.writable()

    async def send(self, frame: bytes) -> None:
        """Pass one whole frame to the stage; waits only when the pipe is full. Raises StageGone."""
        if not self.write(frame):
            await self.writable()

    async def close(self) -> None:
        """End the child within two seconds, by force if needed. Safe to call again, and to cancel."""
        self._closing = True
        await _end(self._pipes)

    def _ended(self, _: asyncio.Future[None]) -> None:
        if self._closing:
            return
        self._on_exit(_cause(self._pipes))


async def _spawn(*, gentle: bool) -> _Pipes:
    loop = asyncio.get_running_loop()
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    transport, pipes = await loop.subprocess_exec(
        _Pipes,
        sys.executable,
        "-m",
        WORKER,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        creationflags=NO_WINDOW,
        start_new_session=gentle,  # for a scheduling group of its own, see agent.stage.priority; not on Windows
    )
    out = transport.get_pipe_transport(1)
    if out is not None and sys.platform == "linux":
        widen(out.get_extra_info("pipe").fileno())
    _stdin(pipes).set_write_buffer_limits(high=WRITE_HIGH_BYTES)
    return pipes


async def _await_report(pipes: _Pipes, spec: StageSpec, timeout_s: float) -> StageReport:
    first: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    pipes.frames.on_frame = lambda data: None if first.done() else first.set_result(data)
    _stdin(pipes).write(encode_spec(spec))
    either: set[asyncio.Future[Any]] = {first, pipes.ended}
    await asyncio.wait(either, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    if first.done():
        return _report(decode(first.result()))
    if pipes.ended.done():
        raise StageLoadError("died", _cause(pipes))
    raise StageLoadError("load", f"The stage was not loaded within {timeout_s:.0f} s; plan fewer layers for this PC.")


def _report(frame: Frame) -> StageReport:
    try:
        if frame.type is FrameType.NACK:
            nack = msgspec.msgpack.decode(frame.table, type=Nack)
            raise StageLoadError(nack.code, nack.message)
        return msgspec.msgpack.decode(frame.table, type=StageReport)
    except UNREADABLE as error:
        raise StageLoadError("load", f"The stage's report cannot be parsed ({error}); reinstall the agent.") from error


async def _end(pipes: _Pipes) -> None:
    """Close stdin, then kill; a cancelled caller leaves a killed child behind, never a running one."""
    try:
        if not pipes.ended.done():
            stdin = _stdin(pipes)
            # Asyncio takes a second abort badly.
            if not stdin.is_closing():
                stdin.abort()
            await asyncio.wait({pipes.ended}, timeout=CLOSE_GRACE_S)
    finally:
        if not pipes.ended.done():
            pipes.kill()
        pipes.transport.close()
    await asyncio.shield(pipes.ended)


def _cause(pipes: _Pipes) -> str:
    if pipes.broken:
        return pipes.broken
    code = pipes.transport.get_returncode()
    tail = pipes.stderr_tail()
    how = f"was ended by signal {-code}" if code is not None and code < 0 else f"ended with exit code {code}"
    return f"The stage's child process {how}; load the stage again." + (f" Its last words: {tail}" if tail else "")


def _stdin(pipes: _Pipes) -> asyncio.WriteTransport:
    transport = pipes.transport.get_pipe_transport(0)
    if not isinstance(transport, asyncio.WriteTransport):
        raise StageGone("The stage's child process has no stdin any more; load the stage again.")
    return transport
