"""Python's garbage collection, on the GUI thread only.

A collection runs in whatever thread happens to allocate. One on the loop thread would destroy Qt objects there that lie
in a cycle of references, which Qt does not survive. So programs with windows collect on a timer.
"""

from __future__ import annotations

import gc

from PySide6.QtCore import QObject, QTimer

EVERY_MS = 1000


class Collector(QObject):
    """Takes garbage collection over for the whole process, until `stop`. GUI thread."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        gc.disable()
        self._timer = QTimer(self)
        self._timer.setInterval(EVERY_MS)
        self._timer.timeout.connect(self.collect_if_due)
        self._timer.start()

    def stop(self) -> None:
        """Leave it to Python again."""
        self._timer.stop()
        gc.enable()

    def collect_if_due(self) -> None:
        """Collect the oldest generation that Python itself would collect now."""
        due = [place for place, (count, most) in enumerate(zip(gc.get_count(), gc.get_threshold(), strict=True))
               if count > most > 0]  # fmt: skip
        if due:
            gc.collect(max(due))
