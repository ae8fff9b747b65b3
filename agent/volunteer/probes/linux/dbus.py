"""Questions to D-Bus services, and their signals: one connection per probe, an answer in time or none.

jeepney, because it takes explicit signatures and is no second event loop. One thread at a time; `close` from any.
"""

from __future__ import annotations

import contextlib
import os
import socket
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from jeepney import DBusAddress, HeaderFields, MatchRule, Message, MessageType, message_bus, new_method_call
from jeepney.bus import get_bus
from jeepney.io.blocking import DBusConnection, prep_socket
from jeepney.wrappers import Properties

from agent.volunteer.probes.base import Absent, Seen, Unreadable

BusName = Literal["SESSION", "SYSTEM"]
ANSWER_S = 0.4
"""How long a service may take: less than a probe's deadline, so that the reason is known, too."""
ABSENT_ERRORS = frozenset(
    "org.freedesktop." + name
    for name in (
        "login1.NoSuchSession",
        "login1.NoSuchUser",
        "DBus.Error.ServiceUnknown",
        "DBus.Error.NameHasNoOwner",
        "DBus.Error.UnknownObject",
        "DBus.Error.UnknownInterface",
        "DBus.Error.UnknownMethod",
        "DBus.Error.UnknownProperty",
        "DBus.Error.NotSupported",
        "DBus.Error.Spawn.ServiceNotFound",
    )
)
"""The service, or what was asked of it, is not on this PC."""


@dataclass(frozen=True)
class Place:
    """An object of a service, seen through one interface."""

    bus: BusName
    service: str
    path: str
    interface: str

    @property
    def address(self) -> DBusAddress:
        return DBusAddress(self.path, self.service, self.interface)


class Bus:
    """One connection, opened when first needed and again after it broke."""

    def __init__(
        self, name: BusName, environment: Mapping[str, str] = os.environ, *, timeout_s: float = ANSWER_S
    ) -> None:
        self.name = name
        self._environment = environment
        self._timeout_s = timeout_s
        self._socket: socket.socket | None = None
        self._connection: DBusConnection | None = None
        self._closed = False

    def call(self, place: Place, method: str, signature: str = "", *arguments: Any) -> tuple[Any, ...]:
        """Call a method and return what it answers. Raises Absent or Unreadable."""
        message = new_method_call(place.address, method, signature or None, arguments)
        return self._ask(message, place.service)

    def get(self, place: Place, name: str) -> Any:
        """Return a property. Raises Absent or Unreadable."""
        return _variant(self._ask(Properties(place.address).get(name), place.service))

    def get_all(self, place: Place) -> dict[str, Any]:
        """Return all properties of the interface. Raises Absent or Unreadable."""
        (found,) = self._ask(Properties(place.address).get_all(), place.service)
        return {name: value for name, (_, value) in found.items()}

    def listen(self, *rules: MatchRule) -> None:
        """Ask the bus for the signals that match. Raises Absent or Unreadable."""
        for rule in rules:
            self._ask(message_bus.AddMatch(rule), "the bus")

    def next_signal(self) -> Message:
        """Wait for the next signal, for ever. Raises Unreadable when the connection ends."""
        while True:
            try:
                message = self._open().receive()
            except OSError as error:
                self.drop()
                raise Unreadable(f"the {self.name.lower()} bus ended the connection ({error})") from None
            if message.header.message_type is MessageType.signal:
                return message

    def close(self) -> None:
        """End the connection; a call that waits in another thread fails then, and none is opened again."""
        self._closed = True
        opened = self._socket
        if opened is not None:
            # Only the traffic ends here: the thread that uses the connection lets go of it.
            with contextlib.suppress(OSError):
                opened.shutdown(socket.SHUT_RDWR)

    def drop(self) -> None:
        """Let go of the connection, in the thread that uses it; the next call opens another one."""
        connection, self._connection = self._connection, None
        opened, self._socket = self._socket, None
        if connection is not None:
            connection.close()
        elif opened is not None:
            opened.close()

    def _ask(self, message: Message, service: str) -> tuple[Any, ...]:
        connection = self._open()
        try:
            reply = connection.send_and_get_reply(message, timeout=self._timeout_s)
        except TimeoutError:
            raise Unreadable(f"{service} does not answer") from None
        except OSError as error:
            self.drop()
            raise Unreadable(f"the {self.name.lower()} bus ended the connection ({error})") from None
        except Exception:  # jeepney meets malformed data with whatever its parser runs into
            self.drop()
            raise
        if reply.header.message_type is not MessageType.error:
            return tuple(reply.body)
        name = str(reply.header.fields.get(HeaderFields.error_name, ""))
        if name in ABSENT_ERRORS:
            raise Absent(f"{service} is not here ({name.rpartition('.')[2]})")
        raise Unreadable(f"{service} answered {name.rpartition('.')[2] or 'an error'}")

    def _open(self) -> DBusConnection:
        if self._closed:
            raise Unreadable("the probe ends")
        if self._connection is None:
            address = bus_address(self.name, self._environment)
            try:
                self._socket = prep_socket(get_bus(address), timeout=self._timeout_s)
                self._connection = DBusConnection(self._socket)
            except OSError as error:
                self.drop()
                said = f"the {self.name.lower()} bus cannot be reached ({error.strerror or error})"
                raise (Absent if isinstance(error, FileNotFoundError) else Unreadable)(said) from None
            except Exception:
                self.drop()
                raise
        return self._connection


class BusSource(ABC):
    """A source that asks over one bus."""

    def __init__(self, name: BusName, environment: Mapping[str, str]) -> None:
        self._bus = Bus(name, environment)

    @abstractmethod
    def read(self) -> Seen: ...

    def close(self) -> None:
        self._bus.close()

    def finish(self) -> None:
        self._bus.drop()


def bus_address(name: BusName, environment: Mapping[str, str]) -> str:
    """Return where a bus is. Raises Absent where this session has none."""
    if name == "SYSTEM":
        return environment.get("DBUS_SYSTEM_BUS_ADDRESS") or "unix:path=/run/dbus/system_bus_socket"
    if address := environment.get("DBUS_SESSION_BUS_ADDRESS"):
        return address
    beside = Path(environment.get("XDG_RUNTIME_DIR") or "/nonexistent") / "bus"
    if not beside.exists():
        raise Absent("there is no session bus")
    return f"unix:path={beside}"


def _variant(body: tuple[Any, ...]) -> Any:
    ((_, value),) = body
    return value


def whole(value: Any, least: int, most: int, what: str) -> int:
    """Check a number of a service. Raises Unreadable for another type or one out of range."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise Unreadable(f"{what} says {value!r}")
    return value


def flag(value: Any, what: str) -> bool:
    """Check a truth value of a service. Raises Unreadable."""
    if not isinstance(value, bool):
        raise Unreadable(f"{what} says {value!r}")
    return value


def signal_rule(place: Place, member: str) -> MatchRule:
    """Match one signal of a place."""
    return MatchRule(type="signal", interface=place.interface, member=member, path=place.path)


def member_of(message: Message) -> tuple[str, tuple[Any, ...]]:
    """Return a signal's name and arguments."""
    return str(message.header.fields.get(HeaderFields.member, "")), tuple(message.body or ())
