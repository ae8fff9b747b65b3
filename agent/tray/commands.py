"""What the owner can tell the service, as methods: each gives one order and reports its end."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QObject, Signal

from agent.control.protocol import (
    Answer,
    CancelEnrolment,
    ChangeSetting,
    ContributeNow,
    Done,
    Leave,
    Order,
    Pause,
    Quit,
    Refused,
    Release,
    Resume,
    SwitchDevice,
)
from agent.control.status import PolicyValue
from agent.tray.bridge import Bridge
from agent.tray.texts import Texts
from agent.tray.view import CONSENT_FIELD


class Commands(QObject):
    """GUI thread. `said` carries a sentence for the owner and whether it is one of failure."""

    said = Signal(str, bool)

    def __init__(self, bridge: Bridge, texts: Texts, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.bridge = bridge
        self._texts = texts

    def pause_for(self, seconds: float) -> None:
        """Pause for a time."""
        self._give(lambda id_: Pause(id_, "time", seconds), "said.paused")

    def pause_until_tomorrow(self) -> None:
        """Pause until tomorrow morning."""
        self._give(lambda id_: Pause(id_, "tomorrow"), "said.paused")

    def pause_until_resumed(self) -> None:
        """Pause until the owner says otherwise."""
        self._give(lambda id_: Pause(id_, "resumed"), "said.paused")

    def resume(self) -> None:
        """End the owner's pause."""
        self._give(Resume, "said.resumed")

    def release(self) -> None:
        """Give the memory back now."""
        self._give(Release, "said.released")

    def contribute_now(self) -> None:
        """Start without waiting for the owner to be away."""
        self._give(ContributeNow, "said.contribute")

    def switch_device(self, device: str, on: bool) -> None:
        """Let a device be used, or not."""
        self._give(lambda id_: SwitchDevice(id_, device, on), "said.changed")

    def change(self, field: str, value: PolicyValue) -> None:
        """Set or take back a wish for a policy row."""
        self._give(lambda id_: ChangeSetting(id_, field, value), "said.changed")

    def consent(self, *, agreed: bool) -> None:
        """Keep the answer of the first run with the service."""
        self.change(CONSENT_FIELD, agreed)

    def stop_waiting(self) -> None:
        """Wait for no administrator's approval any more."""
        self._give(CancelEnrolment, "said.stopped_waiting")

    def leave(self) -> None:
        """Leave the fleet."""
        self._give(Leave, "said.left")

    def quit_service(self, then: Callable[[], None]) -> None:
        """End the service, and `then` do what depends on it. Not called if the service refuses."""
        self._give(Quit, "said.quit", then)

    def _give(self, make: Callable[[int], Order], done_key: str, then: Callable[[], None] = lambda: None) -> None:
        self.bridge.order(make, lambda answer: self._report(answer, done_key, then))

    def _report(self, answer: Answer, done_key: str, then: Callable[[], None]) -> None:
        if isinstance(answer, Refused):
            self.said.emit(answer.message, True)
        elif isinstance(answer, Done):
            self.said.emit(self._texts(done_key), False)
            then()
