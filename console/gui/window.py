"""The window: a list of pages at the left, the page in sight, above it what is wrong, below it what was last said."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from PySide6.QtCore import QByteArray, QEvent, QSettings, QSize, Qt, Signal
from PySide6.QtGui import QAction, QCloseEvent, QIcon, QKeySequence, QPalette
from PySide6.QtWidgets import (
    QFrame,
    QHBoxLayout,
    QListWidget,
    QListWidgetItem,
    QMainWindow,
    QStackedWidget,
    QToolButton,
    QVBoxLayout,
    QWidget,
)

from agent.look import palettes
from agent.look.icons import app_icon, drawn
from agent.look.widgets import announce, fit, label, title
from console.gui.page import Page

GEOMETRY = "window/geometry"
ICON_LINES = 1.2


class Window(QMainWindow):
    """GUI thread. Shows pages it is given; without any, why there are none. Ends nothing but itself."""

    wants_service = Signal()
    """Somebody wants to connect with a service, or with another one."""

    def __init__(self, settings: QSettings) -> None:
        super().__init__()
        self._settings = settings
        self._stale = False
        self.pages: dict[str, Page] = {}
        self.actions_: dict[str, QAction] = {}
        self.setWindowTitle("Fallow console")
        self.setWindowIcon(app_icon())
        self.list = _PageList()
        self.list.currentRowChanged.connect(self._turn)
        self.stack = QStackedWidget()
        self.banner = _Banner()
        self.said = label()
        self.said.setObjectName("said")
        self.service = QToolButton()
        self.service.setObjectName("service")
        self.service.setAutoRaise(True)
        self.service.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextBesideIcon)
        self.service.setAccessibleName("Service and sign-in")
        self.service.clicked.connect(self.wants_service)
        self.outside = _Outside()
        self.outside.button.clicked.connect(self.wants_service)
        self._lay_out()
        self._make_actions()
        fit(self, columns=190, lines=52)
        geometry = settings.value(GEOMETRY)
        if isinstance(geometry, QByteArray):
            self.restoreGeometry(geometry)
        self.show_outside("Not connected", "")

    def show_pages(self, pages: Sequence[Page]) -> None:
        """Show other pages; the former ones are deleted, and the page in sight stays the same if it can."""
        former = self.current.name if self.current else ""
        self._drop_pages()
        for page in pages:
            self.pages[page.name] = page
            self.stack.addWidget(page)
            self.list.add(page, len(self.pages))
            page.said.connect(self.say)
            page.wants.connect(self.go)
            page.badge.connect(lambda text, page=page: self.list.show_badge(page, text))
        self.list.fit()
        self.list.show()
        self.go(former if former in self.pages else next(iter(self.pages)), "")

    def show_outside(self, heading: str, why: str) -> None:
        """Show no page, but why and how to connect."""
        self._drop_pages()
        self.list.hide()
        self.banner.hide()
        self.outside.heading.setText(heading)
        self.outside.why.setText(why)
        self.stack.setCurrentWidget(self.outside)

    def show_service(self, text: str, *, reachable: bool) -> None:
        """Show where the window is connected to, and as whom."""
        self.service.setText(text)
        self.service.setProperty("icon_name", "reachable" if reachable else "unreachable")
        self._colour_service()

    def show_trouble(self, text: str) -> None:
        """Say above the pages what is wrong, and grey what they show; empty: nothing is."""
        appeared = bool(text) and not self.banner.isVisible()
        self.banner.text.setText(text)
        self.banner.setVisible(bool(text))
        if appeared:
            announce(self.banner, text)
        if bool(text) != self._stale:
            self._stale = bool(text)
            self._grey()

    def say(self, text: str, failed: bool) -> None:
        """Show and speak what came of an order."""
        self.said.setText(text)
        self.said.setForegroundRole(QPalette.ColorRole.BrightText if failed else QPalette.ColorRole.WindowText)
        announce(self.said, text)

    @property
    def current(self) -> Page | None:
        """The page in sight."""
        shown = self.stack.currentWidget()
        return shown if isinstance(shown, Page) else None

    def go(self, name: str, what: str = "") -> None:
        """Bring a page into sight, and one thing on it."""
        if name not in self.pages:
            self.say("Who is signed in may not see that page.", True)
            return
        self.list.setCurrentRow(list(self.pages).index(name))
        if what:
            self.pages[name].select(what)

    def changeEvent(self, event: QEvent) -> None:  # noqa: N802 - Qt's name
        """Follow other colours."""
        super().changeEvent(event)
        if event.type() == QEvent.Type.PaletteChange:
            self.list.colour()
            self._colour_service()
            self._grey()

    def closeEvent(self, event: QCloseEvent) -> None:  # noqa: N802 - Qt's name
        """Remember where the window was."""
        self._settings.setValue(GEOMETRY, self.saveGeometry())
        super().closeEvent(event)

    def _lay_out(self) -> None:
        line = self.fontMetrics().height()
        self.stack.addWidget(self.outside)
        bottom = QHBoxLayout()
        bottom.setContentsMargins(line, 0, line // 2, 0)
        bottom.addWidget(self.said, 1)
        bottom.addWidget(self.service)
        right = QVBoxLayout()
        right.setSpacing(0)
        right.addWidget(self.banner)
        right.addWidget(self.stack, 1)
        right.addLayout(bottom)
        middle = QWidget()
        across = QHBoxLayout(middle)
        across.setContentsMargins(0, 0, 0, 0)
        across.setSpacing(0)
        across.addWidget(self.list)
        across.addLayout(right, 1)
        self.setCentralWidget(middle)

    def _make_actions(self) -> None:
        """Everything that has keys, each once: the list of shortcuts shows them."""
        for number in range(1, 11):
            self._act(f"page_{number}", f"Page {number} of the list", f"Ctrl+{number % 10}", partial(self._nth, number))
        self._act("find", "Search on this page", "Ctrl+F", self._search)
        self._act("refresh", "Ask the service again", "F5", self._refresh)
        self._act("service", "Connect with another service", "Ctrl+Shift+O", self.wants_service.emit)
        self._act("close", "Close the window", "Ctrl+Q", self.close)

    def _act(self, name: str, text: str, keys: str, do: Callable[[], object]) -> None:
        action = QAction(text, self)
        action.setShortcut(QKeySequence(keys))
        action.triggered.connect(lambda _checked: do())
        self.addAction(action)
        self.actions_[name] = action

    def _nth(self, number: int) -> None:
        if number <= len(self.pages):
            self.list.setCurrentRow(number - 1)

    def _search(self) -> None:
        if self.current is not None:
            self.current.search()

    def _refresh(self) -> None:
        if self.current is not None:
            self.current.refresh()

    def _turn(self, place: int) -> None:
        if 0 <= place < len(self.pages):
            self.stack.setCurrentWidget(list(self.pages.values())[place])
            self.said.clear()

    def _drop_pages(self) -> None:
        self.stack.setCurrentWidget(self.outside)
        self.list.clear()
        for page in self.pages.values():
            self.stack.removeWidget(page)
            page.deleteLater()
        self.pages = {}

    def _grey(self) -> None:
        """Show what is not of now in the colour of what is not important."""
        shown = QPalette()
        if self._stale:
            colours = palettes.COLOURS[palettes.scheme_of(self.palette())]
            for role in (QPalette.ColorRole.WindowText, QPalette.ColorRole.Text):
                shown.setColor(role, colours.disabled)
        self.stack.setPalette(shown)

    def _colour_service(self) -> None:
        name = self.service.property("icon_name")
        if name:
            colours = palettes.COLOURS[palettes.scheme_of(self.palette())]
            side = round(self.fontMetrics().height() * ICON_LINES)
            colour = colours.good if name == "reachable" else colours.bad
            self.service.setIcon(QIcon(drawn(name, side, colour, self.devicePixelRatioF())))


class _PageList(QListWidget):
    """The list of pages, with room around, an icon for each and what waits there."""

    def __init__(self) -> None:
        super().__init__()
        margin = round(self.fontMetrics().height() * 0.6)
        self.setViewportMargins(margin, margin, margin, margin)
        self.setFrameShape(QListWidget.Shape.NoFrame)
        self.setAccessibleName("Pages")
        self.setObjectName("pages")
        side = round(self.fontMetrics().height() * ICON_LINES)
        self.setIconSize(QSize(side, side))
        self._pages: list[Page] = []

    def clear(self) -> None:
        """Forget all."""
        super().clear()
        self._pages = []

    def add(self, page: Page, number: int) -> None:
        """Add a page at the end."""
        self._pages.append(page)
        item = QListWidgetItem(page.heading)
        item.setToolTip(f"Ctrl+{number % 10}" if number <= 10 else page.heading)
        item.setSizeHint(QSize(0, round(self.fontMetrics().height() * 2.1)))
        self.addItem(item)
        self._colour(item, page)

    def show_badge(self, page: Page, text: str) -> None:
        """Show what waits on a page."""
        if page in self._pages:
            item = self.item(self._pages.index(page))
            item.setText(f"{page.heading} ({text})" if text else page.heading)

    def colour(self) -> None:
        """Draw the icons in the colours of now."""
        for row, page in enumerate(self._pages):
            self._colour(self.item(row), page)

    def fit(self) -> None:
        """Be as wide as the longest heading with a badge."""
        metrics = self.fontMetrics()
        widest = max((metrics.horizontalAdvance(f"{page.heading} (999)") for page in self._pages), default=0)
        self.setFixedWidth(widest + self.iconSize().width() + round(metrics.height() * 2.6))

    def _colour(self, item: QListWidgetItem, page: Page) -> None:
        colours = palettes.COLOURS[palettes.scheme_of(self.palette())]
        side, ratio = self.iconSize().width(), self.devicePixelRatioF()
        icon = QIcon(drawn(page.icon, side, colours.text, ratio))
        icon.addPixmap(drawn(page.icon, side, colours.on_accent, ratio), QIcon.Mode.Selected)
        item.setIcon(icon)


class _Banner(QFrame):
    """What is wrong, above everything."""

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("banner")
        self.setAutoFillBackground(True)
        self.setBackgroundRole(QPalette.ColorRole.AlternateBase)
        self.text = label(bold=True)
        self.text.setForegroundRole(QPalette.ColorRole.BrightText)
        line = self.fontMetrics().height()
        row = QHBoxLayout(self)
        row.setContentsMargins(line, line // 2, line, line // 2)
        row.addWidget(self.text, 1)
        self.hide()


class _Outside(QWidget):
    """What is shown while the window is connected with nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.heading = title()
        self.why = label(quiet=True)
        self.button = QToolButton()
        self.button.setText("Connect…")
        line = self.fontMetrics().height()
        rows = QVBoxLayout(self)
        rows.setContentsMargins(line * 3, line * 3, line * 3, line * 3)
        rows.setSpacing(line)
        rows.addWidget(self.heading)
        rows.addWidget(self.why)
        rows.addWidget(self.button, 0, Qt.AlignmentFlag.AlignLeft)
        rows.addStretch(1)
