"""A moment before sleep and shutdown, so that the memory is given back first: logind's delay lock. Linux only.

The lock delays and never prevents, by at most logind's `InhibitDelayMaxSec` (5 s). Where there is no logind nothing is
delayed; Windows gives its programs two seconds by itself.
"""

from __future__ import annotations

import logging
import os
import sys

from agent.threads import finish_in_thread

log = logging.getLogger(__name__)

ANSWER_S = 2.0


class SleepDelay:
    """One lock at most. Event loop only; the bus is asked in a thread."""

    def __init__(self) -> None:
        self._descriptor: int | None = None

    @property
    def is_held(self) -> bool:
        """Whether sleep would wait for us."""
        return self._descriptor is not None

    async def take(self) -> None:
        """Ask for the lock, if it is not held. Never raises."""
        if sys.platform != "linux" or self.is_held:
            return
        self._descriptor = await finish_in_thread(_inhibit, _close)

    def let_go(self) -> None:
        """Let the PC sleep. Safe to call again."""
        descriptor, self._descriptor = self._descriptor, None
        _close(descriptor)


def _close(descriptor: int | None) -> None:
    if descriptor is not None:
        os.close(descriptor)


def _inhibit() -> int | None:
    """Return the lock's file descriptor, or None where it cannot be had."""
    from jeepney import DBusAddress, HeaderFields, MessageType, new_method_call
    from jeepney.io.blocking import open_dbus_connection

    logind = DBusAddress("/org/freedesktop/login1", "org.freedesktop.login1", "org.freedesktop.login1.Manager")
    why = "Giving borrowed memory back"
    message = new_method_call(logind, "Inhibit", "ssss", ("sleep:shutdown", "Fallow", why, "delay"))
    try:
        with open_dbus_connection("SYSTEM", enable_fds=True) as connection:
            reply = connection.send_and_get_reply(message, timeout=ANSWER_S)
            if reply.header.message_type is MessageType.method_return:
                return int(reply.body[0].to_raw_fd())
            problem = str(reply.header.fields.get(HeaderFields.error_name, "an error"))
    except (OSError, TimeoutError, KeyError, ValueError, AttributeError) as error:
        problem = type(error).__name__
    log.info("Sleep is not delayed on this PC (%s).", problem)
    return None
