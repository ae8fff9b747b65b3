"""`admin_window`: what a thousand PCs that change every five seconds cost the console's window.

The real window without a screen, with a service of the benchmark behind it, in a process of its own. A timer of the GUI
thread finds out how long that thread was busy; selection and scroll are looked at after each answer.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

from PySide6.QtCore import QObject, QSettings, Qt, QTimer
from PySide6.QtWidgets import QApplication

from agent.look import palettes
from console.access import Access
from console.bench.figures import percentile
from console.gui.connecting import Entry
from console.gui.devices.page import DevicesPage
from console.gui.kept import KeptTokens
from console.gui.pages import PAGES
from console.gui.places import Place
from console.gui.program import ConsoleProgram
from tests.bench.admin_answers import OWNER

Say = Callable[[str], None]
PCS = 1000
WATCH_S = 20.0
CALM_S = 6.0
"""What the first answer costs is over by then; it is measured apart."""
TICK_MS = 4
PATIENCE_S = 60.0


class Watch(QObject):
    """Finds out how long the GUI thread was busy: what a tick is late."""

    def __init__(self) -> None:
        super().__init__()
        self.late_ms: list[float] = []
        self.busy_ms: list[float] = []
        self._last_s, self._last_cpu_s = time.perf_counter(), time.thread_time()
        self._timer = QTimer(self)
        self._timer.setTimerType(Qt.TimerType.PreciseTimer)
        self._timer.setInterval(TICK_MS)
        self._timer.timeout.connect(self._tick)
        self._timer.start()

    def begin(self) -> None:
        """Forget what was."""
        self.late_ms.clear()
        self.busy_ms.clear()
        self._last_s, self._last_cpu_s = time.perf_counter(), time.thread_time()

    def _tick(self) -> None:
        now_s, cpu_s = time.perf_counter(), time.thread_time()
        self.late_ms.append(max(0.0, (now_s - self._last_s) * 1000 - TICK_MS))
        self.busy_ms.append((cpu_s - self._last_cpu_s) * 1000)
        self._last_s, self._last_cpu_s = now_s, cpu_s


def run(*, rounds: int, tokens: int, say: Say) -> dict[str, Any]:
    """Measure; see the README of this folder for what the keys mean. `tokens` means nothing here."""
    del tokens
    app = QApplication.instance() or QApplication([])
    assert isinstance(app, QApplication)
    palettes.apply(app, "light")
    command = [sys.executable, "-m", "tests.bench.admin_answers", str(PCS)]
    with (
        tempfile.TemporaryDirectory(prefix="fallow-window-") as name,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as service,
    ):
        assert service.stdout is not None
        url = f"http://127.0.0.1:{int(service.stdout.readline())}"
        found = [_measure(app, Path(name), url, say) for _ in range(max(1, rounds))]
        service.communicate()
    return {page: {key: _middle([one[page][key] for one in found]) for key in found[0][page]} for page in found[0]}


def _measure(app: QApplication, folder: Path, url: str, say: Say) -> dict[str, dict[str, Any]]:
    settings = QSettings(str(folder / "geometry.ini"), QSettings.Format.IniFormat)
    program = ConsoleProgram(folder, settings, PAGES, settings_folder=folder, kept=KeptTokens(lambda: None))
    program.window.show()
    program._enter(Entry(Place(url, sign_in="key"), Access(url, "key"), OWNER))
    watch = Watch()
    try:
        found = {}
        program.window.go("devices")
        page = program.window.current
        assert isinstance(page, DevicesPage)
        _until(app, lambda: page.model.rowCount() > 0)
        found["first"] = {"longest_ms": round(max(watch.late_ms), 1)}
        found["devices"] = _follow(app, page, watch)
        say(f"devices: {found['devices']}")
        page.words.setText("pc oslo")
        found["search"] = _follow(app, page, watch)
        say(f"search: {found['search']}")
        program.window.go("overview")
        _spin(app, CALM_S)
        found["overview"] = _watched(app, watch)
        say(f"overview: {found['overview']}")
    finally:
        program.stop()
    return found


def _follow(app: QApplication, page: DevicesPage, watch: Watch) -> dict[str, Any]:
    """Watch the table with a row selected and scrolled to its middle."""
    _spin(app, CALM_S)
    table = page.table
    table.selectRow(page.model.rowCount() // 2)
    table.verticalScrollBar().setValue(table.verticalScrollBar().maximum() // 2)
    chosen, place = table.chosen(), table.verticalScrollBar().value()
    found = _watched(app, watch)
    moved = abs(table.verticalScrollBar().value() - place)
    return {**found, "selection_kept": table.chosen() == chosen, "scrolled_rows": moved, "rows": page.model.rowCount()}


def _watched(app: QApplication, watch: Watch) -> dict[str, Any]:
    watch.begin()
    began_s, cpu_s = time.perf_counter(), time.process_time()
    _spin(app, WATCH_S)
    share = (time.process_time() - cpu_s) / (time.perf_counter() - began_s)
    return {
        "longest_ms": round(max(watch.late_ms), 1),
        "longest_cpu_ms": round(max(watch.busy_ms), 1),
        "p99_ms": round(percentile(watch.late_ms, 0.99), 1),
        "over_16_ms": sum(late > 16 for late in watch.late_ms),
        "cpu_percent": round(100 * share, 1),
    }


def _spin(app: QApplication, seconds: float) -> None:
    """Let the window live."""
    timer = QTimer()
    timer.setSingleShot(True)
    timer.timeout.connect(app.quit)
    timer.start(round(seconds * 1000))
    app.exec()


def _until(app: QApplication, condition: Callable[[], bool]) -> None:
    end_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end_s
        _spin(app, 0.05)


def _middle(values: list[Any]) -> Any:
    return all(values) if isinstance(values[0], bool) else median(values)
