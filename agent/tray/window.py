"""The window: a list of pages at the left, the page in sight at the right, what was last said at the bottom."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QByteArray, QSettings, QSize, Qt, QTimer
from PySide6.QtGui import QAction, QCloseEvent, QKeySequence, QPalette, QShortcut
from PySide6.QtWidgets import (
    QHBoxLayout,
    QListWidget,
    QListWidgetItem,
    QMainWindow,
    QStackedWidget,
    QVBoxLayout,
    QWidget,
)

from agent.control.status import Status
from agent.look.icons import app_icon
from agent.look.widgets import announce, fit, label
from agent.tray.pages.page import Page
from agent.tray.texts import Texts
from agent.tray.view import Shown

GEOMETRY = "window/geometry"
SAID_MS = 10_000
"""How long the answer to an order stays in sight, if it is no failure."""


class _PageList(QListWidget):
    """The list of pages, with room around."""

    def __init__(self) -> None:
        super().__init__()
        margin = round(self.fontMetrics().height() * 0.6)
        self.setViewportMargins(margin, margin, margin, margin)
        self.setFrameShape(QListWidget.Shape.NoFrame)


class Window(QMainWindow):
    """GUI thread. Only the page in sight follows the service."""

    def __init__(self, pages: Sequence[Page], actions: Sequence[QAction], texts: Texts, settings: QSettings) -> None:
        super().__init__()
        self._settings = settings
        self._latest: tuple[Status | None, Shown] | None = None
        self.pages = {page.name: page for page in pages}
        self.setWindowTitle("Fallow")
        self.setWindowIcon(app_icon())
        self.list = _PageList()
        self.list.setAccessibleName(texts("window.pages"))
        self.list.setObjectName("pages")
        self.stack = QStackedWidget()
        for number, page in enumerate(pages, start=1):
            item = QListWidgetItem(texts(f"page.{page.name}"))
            item.setToolTip(f"Ctrl+{number}")
            self.list.addItem(item)
            self.stack.addWidget(page)
            shortcut = QShortcut(QKeySequence(f"Ctrl+{number}"), self)
            shortcut.activated.connect(lambda name=page.name: self.go(name))
        self._fit_list()
        self.list.currentRowChanged.connect(self._turn)
        self.said = label()
        self.said.setObjectName("said")
        self.said.hide()
        self._fading = QTimer(self)
        self._fading.setSingleShot(True)
        self._fading.timeout.connect(self.said.hide)
        self._lay_out()
        self.addActions(list(actions))
        QShortcut(QKeySequence(Qt.Key.Key_Escape), self).activated.connect(self.close)
        fit(self, columns=140, lines=44)
        geometry = settings.value(GEOMETRY)
        if isinstance(geometry, QByteArray):
            self.restoreGeometry(geometry)
        self.list.setCurrentRow(0)

    def follow(self, status: Status | None, shown: Shown) -> None:
        """Show a status on the page in sight."""
        self._latest = status, shown
        if self.isVisible():
            self._page().follow(status, shown)

    def go(self, name: str) -> None:
        """Bring a page into sight."""
        self.list.setCurrentRow(list(self.pages).index(name))

    def bring_up(self, name: str = "") -> None:
        """Show the window in front of the others, at a page if one is named."""
        if name:
            self.go(name)
        fresh = not self.isVisible()
        self.setWindowState(self.windowState() & ~Qt.WindowState.WindowMinimized)
        self.show()
        self.raise_()
        self.activateWindow()
        if fresh:
            self._refresh()

    def say(self, text: str, failed: bool) -> None:
        """Show and speak what came of an order."""
        self.said.setText(text)
        self.said.show()
        self.said.setForegroundRole(QPalette.ColorRole.BrightText if failed else QPalette.ColorRole.WindowText)
        announce(self.said, text)
        if failed:
            self._fading.stop()  # somebody has to do something about it
        else:
            self._fading.start(SAID_MS)

    def unsay(self) -> None:
        """Take away what was said last: it does not hold any more."""
        self._fading.stop()
        self.said.hide()

    def closeEvent(self, event: QCloseEvent) -> None:  # noqa: N802 - Qt's name
        self._settings.setValue(GEOMETRY, self.saveGeometry())
        super().closeEvent(event)

    def _lay_out(self) -> None:
        margin = self.fontMetrics().height()
        self.said.setContentsMargins(margin, 0, margin, margin // 2)
        right = QVBoxLayout()
        right.setSpacing(0)
        right.addWidget(self.stack, 1)
        right.addWidget(self.said)
        middle = QWidget()
        line = QHBoxLayout(middle)
        line.setContentsMargins(0, 0, 0, 0)
        line.setSpacing(0)
        line.addWidget(self.list)
        line.addLayout(right, 1)
        self.setCentralWidget(middle)

    def _page(self) -> Page:
        return list(self.pages.values())[self.stack.currentIndex()]

    def _turn(self, place: int) -> None:
        self.stack.setCurrentIndex(place)
        self.unsay()
        if self.isVisible():
            self._refresh()

    def _refresh(self) -> None:
        page = self._page()
        if self._latest is not None:
            page.follow(*self._latest)
        page.entered()

    def _fit_list(self) -> None:
        line = self.fontMetrics().height()
        widest = max(
            self.fontMetrics().horizontalAdvance(self.list.item(row).text()) for row in range(self.list.count())
        )
        for row in range(self.list.count()):
            self.list.item(row).setSizeHint(QSize(widest + line, round(line * 2)))
        self.list.setFixedWidth(widest + round(line * 2.8))
