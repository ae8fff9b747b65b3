"""A real X server without a screen, and a compositor of a few lines: what the presence probes talk to."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import struct
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.patience import PATIENCE_S


class XServer:
    """A running Xvfb; `environment` is that of a program on its display."""

    def __init__(self, process: subprocess.Popen[bytes], number: int) -> None:
        self.process = process
        self.environment = {"DISPLAY": f":{number}"}

    def type_key(self, *arguments: str) -> None:
        """Send input as a person would: `mousemove_relative 5 5`, or a key."""
        command = ["xdotool", *(arguments or ("key", "a"))]
        subprocess.run(
            command, env={**os.environ, **self.environment}, check=True, timeout=PATIENCE_S, capture_output=True
        )

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@contextlib.contextmanager
def x_server(size: str = "320x240", memory_folder: Path | None = None) -> Iterator[XServer]:
    """Start a display; skips where Xvfb or xdotool is missing. `memory_folder` is where its picture can be read."""
    missing = [name for name in ("Xvfb", "xdotool") if shutil.which(name) is None]
    if missing:
        pytest.skip(f"{' and '.join(missing)} are not installed (Debian: apt-get install xvfb xdotool)")
    reads, writes = os.pipe()
    command = ["Xvfb", "-displayfd", str(writes), "-screen", "0", f"{size}x24", "-nolisten", "tcp", "-noreset"]
    if memory_folder is not None:
        command += ["-fbdir", str(memory_folder)]
    with subprocess.Popen(command, pass_fds=[writes], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        os.close(writes)
        try:
            with os.fdopen(reads) as pipe:
                number = pipe.readline().strip()
            assert number, "Xvfb did not start"
            yield XServer(process, int(number))
        finally:
            process.kill()


class Compositor:
    """A Wayland compositor that knows a seat and `ext_idle_notifier_v1`; `idled` and `resumed` come on demand."""

    def __init__(self, folder: Path, *, seats: int = 1, notifier: int = 2) -> None:
        """`notifier` is its version, 0 for none."""
        self.environment = {"WAYLAND_DISPLAY": "wayland-0", "XDG_RUNTIME_DIR": str(folder)}
        self.requests: list[tuple[int, int, bytes]] = []
        self.ready = threading.Event()
        """Set when every seat has a notification."""
        self._globals = [("wl_seat", 5)] * seats + ([("ext_idle_notifier_v1", notifier)] if notifier else [])
        self._seats = seats
        self._notifications: list[int] = []
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(folder / "wayland-0"))
        self._listener.listen()
        self._client: socket.socket | None = None
        self._thread = threading.Thread(target=self._serve, name="compositor")
        self._thread.start()

    def say(self, opcode: int, seat: int = 0) -> None:
        """Send `idled` (0) or `resumed` (1) for a seat."""
        self._event(self._notifications[seat], opcode, b"")

    def add_seat(self) -> None:
        self._global(99, "wl_seat", 5)

    def remove_global(self, number: int) -> None:
        """Say that a global is gone; who connects later never hears of it. Seats are numbered from 1, then the rest."""
        if self._globals[number - 1][0] == "wl_seat":
            self._seats -= 1
        self._globals[number - 1] = ("", 0)
        self._event(2, 1, struct.pack("=I", number))

    def send_raw(self, data: bytes) -> None:
        assert self._client is not None
        self._client.sendall(data)

    def drop(self) -> None:
        """End the client's connection, as a compositor that starts anew does."""
        self.ready.clear()
        assert self._client is not None
        self._client.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        if self._client is not None:
            with contextlib.suppress(OSError):
                self._client.shutdown(socket.SHUT_RDWR)
        self._thread.join(PATIENCE_S)

    def _serve(self) -> None:
        while True:
            try:
                self._client, _ = self._listener.accept()
            except OSError:
                return
            self._notifications = []
            with self._client, contextlib.suppress(OSError):
                self._talk(self._client)

    def _talk(self, client: socket.socket) -> None:
        buffer = b""
        while data := client.recv(4096):
            buffer += data
            while len(buffer) >= 8:
                target, packed = struct.unpack_from("=II", buffer)
                size, opcode = packed >> 16, packed & 0xFFFF
                if len(buffer) < size:
                    break
                self._take(target, opcode, buffer[8:size])
                buffer = buffer[size:]

    def _take(self, target: int, opcode: int, body: bytes) -> None:
        self.requests.append((target, opcode, body))
        if (target, opcode) == (1, 1):
            for number, (interface, version) in enumerate(self._globals, 1):
                if interface:
                    self._global(number, interface, version)
        elif (target, opcode) == (1, 0):
            self._event(struct.unpack("=I", body)[0], 0, bytes(4))
        elif target == 4:
            self._notifications.append(struct.unpack_from("=I", body)[0])
            if len(self._notifications) == self._seats:
                self.ready.set()

    def _global(self, number: int, interface: str, version: int) -> None:
        text = interface.encode() + b"\0"
        body = struct.pack("=II", number, len(text)) + text + bytes(-len(text) % 4) + struct.pack("=I", version)
        self._event(2, 0, body)

    def _event(self, target: int, opcode: int, body: bytes) -> None:
        self.send_raw(struct.pack("=II", target, (8 + len(body)) << 16 | opcode) + body)
