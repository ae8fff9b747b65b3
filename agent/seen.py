"""What the console was told of this PC, for its owner to read. Every field of the messages that say how a PC is has its
place here; what they say of the work itself (stages, deliveries, direct links) is not part of it. Pure.
"""

from __future__ import annotations

from collections.abc import Callable

from agent.link.messages import (
    Device,
    FromAgent,
    Heartbeat,
    Hello,
    Holding,
    LogLines,
    MarkKept,
    Measurements,
    PolicyKept,
    Resting,
    UpdateState,
    Yield,
)

BLOCKS_A_DAY = 8
"""How many numbers of Resting make a day."""


SaysHowItIs = Heartbeat | Yield | Holding | MarkKept | PolicyKept | Resting | Measurements | LogLines | UpdateState


class ConsoleView:
    """Begins with the Hello of a session and takes note of what is said after it. One thread.

    `on_change` is called when a message makes a difference to `seen`.
    """

    def __init__(self, hello: Hello, on_change: Callable[[], None] = lambda: None) -> None:
        self._hello = hello
        self._on_change = on_change
        self._state, self._reasons = hello.state, hello.reasons
        self._mark = hello.mark
        self._held = set(hello.held_sha256)
        self._memory_free_bytes: int | None = None
        self._addresses: list[str] = []
        self._policy: PolicyKept | None = None
        self._resting: Resting | None = None
        self._measured = Measurements([])
        self._log_lines = 0
        self._update = UpdateState("")

    def note(self, message: FromAgent) -> None:
        """Take note of what is sent; what is said of the work leaves no trace."""
        if isinstance(message, SaysHowItIs):
            before = self.seen()
            self._take(message)
            if self.seen() != before:
                self._on_change()

    def _take(self, message: SaysHowItIs) -> None:
        if isinstance(message, Heartbeat):
            self._memory_free_bytes = message.memory_free_bytes
            self._state, self._reasons = message.state, message.reasons
        elif isinstance(message, Yield):
            self._state, self._reasons = "held", message.reasons
        elif isinstance(message, Holding):
            self._held = (self._held | set(message.added)) - set(message.removed)
            self._addresses = message.addresses
        elif isinstance(message, MarkKept):
            self._mark = message.mark
        elif isinstance(message, PolicyKept):
            self._policy = message
        elif isinstance(message, Measurements):
            self._measured = message
        elif isinstance(message, LogLines):
            self._log_lines = max(self._log_lines, len(message.lines))
        elif isinstance(message, UpdateState):
            self._update = message
        else:
            self._resting = message

    def seen(self) -> dict[str, str]:
        """Return all of it by name, as text; empty where nothing was told."""
        hello = self._hello
        return {
            "state": self._state,
            "reasons": ", ".join(self._reasons),
            "memory_free": "" if self._memory_free_bytes is None else _size(self._memory_free_bytes),
            "resting": _rests(self._resting),
            "measured": _measured(self._measured),
            "host": hello.host,
            "os": hello.os,
            "cores": str(hello.cores),
            "memory": _size(hello.memory_bytes),
            "devices": "; ".join(_device(device) for device in hello.devices),
            "version": hello.version,
            "openvino": hello.openvino,
            "protocol": _protocol(hello),
            "policy": _policy(self._policy),
            "key_protection": hello.key_protection,
            "mark": self._mark,
            "held_files": f"{len(self._held)}" if self._held else "",
            "addresses": ", ".join(self._addresses),
            "update": _update(hello, self._update),
            "log": f"{self._log_lines}" if self._log_lines else "",
        }


def _size(size_bytes: int) -> str:
    return f"{size_bytes / 2**30:.1f} GiB"


def _protocol(hello: Hello) -> str:
    known = {"policies": hello.takes_policy, "new epochs": hello.advances, "log lines": hello.tells_log}
    extras = [name for name, has in known.items() if has]
    return f"{hello.protocol}, with {', '.join(extras)}" if extras else str(hello.protocol)


def _device(device: Device) -> str:
    driver = [f"driver {device.driver}"] if device.driver else []
    return ", ".join([f"{device.name}: {device.full_name}", _size(device.memory_bytes), *device.engines, *driver])


def _measured(measured: Measurements) -> str:
    """Write what a layer takes on each device and engine, and what the link carried."""
    parts = [
        f"{unit.device} {speed.engine} ({unit.numerics}): {speed.layer_ms:.2f} ms per"
        f" {unit.layer_bytes / 2**20:.1f} MiB"
        for unit in measured.units
        for speed in unit.speeds
    ]
    if measured.down_bytes_per_s:
        parts.append(f"{measured.down_bytes_per_s / 2**20:.1f} MiB/s")
    return "; ".join(parts)


def _rests(resting: Resting | None) -> str:
    """Write one group of numbers for each day, Monday first."""
    if resting is None or not resting.blocks:
        return ""
    blocks = [str(block) for block in resting.blocks]
    days = [" ".join(blocks[first : first + BLOCKS_A_DAY]) for first in range(0, len(blocks), BLOCKS_A_DAY)]
    return f"{' | '.join(days)} (UTC{resting.utc_offset_s / 3600:+g} h)"


def _update(hello: Hello, state: UpdateState) -> str:
    return ", ".join(filter(None, (hello.platform, hello.channel, state.phase, state.version, state.problem)))


def _policy(kept: PolicyKept | None) -> str:
    if kept is None:
        return ""
    return f"{kept.revision}: {kept.code}, {kept.message}" if kept.code else str(kept.revision)
