"""A private D-Bus daemon and fake services on it: a desktop as healthy or as ill as a test wants it."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest
from jeepney import (
    DBusAddress,
    HeaderFields,
    Message,
    MessageType,
    message_bus,
    new_error,
    new_method_return,
    new_signal,
)
from jeepney.bus import get_bus
from jeepney.io.blocking import DBusConnection, prep_socket

from tests.support.patience import PATIENCE_S

PROPERTIES = "org.freedesktop.DBus.Properties"
HANG = object()
"""An answer that never comes."""


class Refusal(Exception):
    """An answer that is a D-Bus error of this name."""


@contextlib.contextmanager
def private_bus(folder: Path) -> Iterator[dict[str, str]]:
    """Start a bus; gives the environment in which it is the session's and the system's. Skips where there is none."""
    daemon = shutil.which("dbus-daemon")
    if daemon is None:
        pytest.skip("dbus-daemon is not installed (Debian: apt-get install dbus-daemon)")
    address = f"unix:path={folder}/bus"
    with subprocess.Popen(
        [daemon, "--session", "--nofork", "--nopidfile", "--nosyslog", f"--address={address}", "--print-address=1"],
        stdout=subprocess.PIPE,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline()  # it listens now
            yield {"DBUS_SESSION_BUS_ADDRESS": address, "DBUS_SYSTEM_BUS_ADDRESS": address}
        finally:
            process.terminate()


Methods = dict[tuple[str, str], Any]


class FakeService:
    """One service: answers from `methods` by interface and member, and with the properties it is given.

    An answer is (signature, body), a function of the arguments that returns one, HANG, or a Refusal.
    """

    def __init__(self, environment: dict[str, str], name: str, methods: Methods | None = None) -> None:
        """`methods`: those it has from the first moment on, for somebody who waits for the name."""
        self.methods: Methods = methods or {}
        self.properties: dict[tuple[str, str], dict[str, tuple[str, Any]]] = {}
        self.calls: list[str] = []
        self.called = threading.Event()
        self._left = threading.Event()
        self._name = name
        self._lock = threading.Lock()
        self._connection = DBusConnection(prep_socket(get_bus(environment["DBUS_SESSION_BUS_ADDRESS"])))
        self._connection.send_and_get_reply(message_bus.RequestName(name), timeout=PATIENCE_S)
        self._thread = threading.Thread(target=self._serve, name=f"fake-{name}")
        self._thread.start()

    def emit(self, path: str, interface: str, member: str, signature: str = "", body: tuple[Any, ...] = ()) -> None:
        signal = new_signal(DBusAddress(path, None, interface), member, signature or None, body)
        with self._lock:
            self._connection.send(signal)

    def close(self) -> None:
        # The bus tells of a connection that broke when it gets to it, which may be after the next question.
        with self._lock, contextlib.suppress(OSError):
            self._connection.send(message_bus.ReleaseName(self._name))
        self._left.wait(PATIENCE_S)
        with contextlib.suppress(OSError):
            self._connection.sock.shutdown(2)
        self._thread.join(PATIENCE_S)
        self._connection.close()

    def _serve(self) -> None:
        while True:
            try:
                message = self._connection.receive()
            except OSError:
                self._left.set()
                return
            if message.header.message_type is MessageType.method_return:
                self._left.set()
            if message.header.message_type is not MessageType.method_call:
                continue
            answer = self._answer(message)
            # Under one lock: whoever sees the call here sends after the answer to it.
            with self._lock, contextlib.suppress(OSError):
                self.calls.append(message.header.fields[HeaderFields.member])
                if answer is not None:
                    self._connection.send(answer)
            self.called.set()

    def _answer(self, message: Message) -> Message | None:
        fields = message.header.fields
        interface, member = fields.get(HeaderFields.interface, ""), fields[HeaderFields.member]
        if interface == PROPERTIES:
            return self._property(message, member)
        answer = self.methods.get((interface, member), Refusal("org.freedesktop.DBus.Error.UnknownMethod"))
        if callable(answer):
            answer = answer(*message.body)
        if answer is HANG:
            return None
        if isinstance(answer, Refusal):
            return new_error(message, str(answer))
        return new_method_return(message, *answer)

    def _property(self, message: Message, member: str) -> Message:
        interface = message.body[0]
        values = self.properties.get((message.header.fields[HeaderFields.path], interface))
        if values is None:
            return new_error(message, "org.freedesktop.DBus.Error.UnknownObject")
        if member == "GetAll":
            return new_method_return(message, "a{sv}", (values,))
        name = message.body[1]
        if name not in values:
            return new_error(message, "org.freedesktop.DBus.Error.UnknownProperty")
        return new_method_return(message, "v", (values[name],))


class MakeService(Protocol):
    """What `services` gives."""

    def __call__(self, name: str, methods: Methods | None = None) -> FakeService: ...


@contextlib.contextmanager
def services(environment: dict[str, str]) -> Iterator[MakeService]:
    """Give a maker of services; all of them end with the block."""
    made = list[FakeService]()

    def make(name: str, methods: Methods | None = None) -> FakeService:
        made.append(FakeService(environment, name, methods))
        return made[-1]

    try:
        yield make
    finally:
        for service in made:
            service.close()
