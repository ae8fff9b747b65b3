"""One question that is asked again and again while somebody looks at the answer."""

from __future__ import annotations

import time
from typing import Any

from PySide6.QtCore import QObject, QTimer, Signal

from console.call import Call
from console.errors import ClientError
from console.gui.alive import alive
from console.gui.bridge import Bridge


class Feed(QObject):
    """Asks while it has watchers, the next time `every_s` after the last answer. GUI thread.

    What was heard last stays in `latest`, with its age, also when the service is away.
    """

    came = Signal(object)
    """An answer."""
    failed = Signal(object)
    """A ClientError; the next attempt comes by itself."""

    def __init__(self, bridge: Bridge, call: Call[Any], every_s: float, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.call = call
        self.latest: Any = None
        self.error: ClientError | None = None
        self._bridge = bridge
        self._heard_s = 0.0
        self._watchers = 0
        self._asking = self._once_more = False
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setInterval(round(every_s * 1000))
        self._timer.timeout.connect(self.now)

    @property
    def age_s(self) -> float | None:
        """How old the latest answer is; None when there is none."""
        return None if self._heard_s == 0.0 else time.monotonic() - self._heard_s

    def watch(self) -> None:
        """One more looks at the answers: ask now."""
        self._watchers += 1
        if not self._asking:
            self.now()

    def leave(self) -> None:
        """One less looks."""
        self._watchers -= 1
        if self._watchers == 0:
            self._timer.stop()

    def now(self) -> None:
        """Ask at once, as after a change: once more if an answer is on its way, which may be older than the change."""
        if self._asking:
            self._once_more = True
            return
        self._asking = True
        self._timer.stop()
        self._bridge.ask(self.call, alive(self, self._take), alive(self, self._fail))

    def _take(self, answer: Any) -> None:
        self.latest, self.error, self._heard_s = answer, None, time.monotonic()
        self._again()
        self.came.emit(answer)

    def _fail(self, error: ClientError) -> None:
        self.error = error
        self._again()
        self.failed.emit(error)

    def _again(self) -> None:
        self._asking = False
        if self._once_more:
            self._once_more = False
            self.now()
        elif self._watchers > 0:
            self._timer.start()
