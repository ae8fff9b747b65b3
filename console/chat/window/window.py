"""The window: chats at the left, the open one at the right, what was last said at the bottom. GUI thread."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QByteArray, QEvent, QSettings, Qt
from PySide6.QtGui import QCloseEvent
from PySide6.QtWidgets import (
    QApplication,
    QHBoxLayout,
    QMainWindow,
    QMessageBox,
    QSplitter,
    QStackedWidget,
    QToolButton,
    QVBoxLayout,
    QWidget,
)

from agent.look import palettes
from agent.look.icons import app_icon
from agent.look.widgets import fit, rescale
from console.chat.settings import Theme
from console.chat.window.actions import Actions
from console.chat.window.answers import Answers
from console.chat.window.chatlist import ChatList
from console.chat.window.chatpage import ChatPage
from console.chat.window.desk import Desk
from console.chat.window.filework import FileWork
from console.chat.window.options import OptionsDialog, ShortcutsDialog
from console.chat.window.said import SaidLine
from console.chat.window.setup import SetupDialog
from console.chat.window.sidebar import Sidebar
from console.chat.window.signin import SignInPage
from console.chat.window.signing import Signing
from console.chat_link import ChatLink

GEOMETRY, SPLIT = "window/geometry", "window/split"


class ChatWindow(QMainWindow):
    """Brings the parts together. `start` once it is made; closing it stops every answer and keeps everything."""

    def __init__(self, desk: Desk, settings: QSettings) -> None:
        super().__init__()
        self.desk, self._settings = desk, settings
        self.setWindowTitle("Fallow chat")
        self.setWindowIcon(app_icon())
        self._base_size = QApplication.font().pointSizeF()
        self._undo: Callable[[], None] | None = None
        self.answers = Answers(desk, self)
        self.actions_ = Actions(self, desk.settings.shortcuts)
        self.sidebar = Sidebar(self.actions_)
        self.page = ChatPage(desk, self.answers, self.actions_)
        self.files = FileWork(desk, self.answers, self)
        self.list = ChatList(desk, self.answers, self.sidebar)
        self.signin = SignInPage()
        self.stack = QStackedWidget()
        self.signing = Signing(desk, self.answers, self.page, self.signin, self.stack)
        self.said = SaidLine()
        self._lay_out()
        self._connect()
        self._connect_actions()
        fit(self, columns=150, lines=46)
        self._apply_font()
        for key, restore in ((GEOMETRY, self.restoreGeometry), (SPLIT, self.split.restoreState)):
            value = settings.value(key)
            if isinstance(value, QByteArray):
                restore(value)

    def start(self, link: ChatLink | None = None) -> None:
        """Read the chats and look for the account, or sign in with a link."""
        self.desk.start()
        self.signing.start(link)

    def bring_up(self) -> None:
        """Show the window in front of the others."""
        self.setWindowState(self.windowState() & ~Qt.WindowState.WindowMinimized)
        self.show()
        self.raise_()
        self.activateWindow()
        if self.stack.currentWidget() is self.split:
            self.page.composer.field.setFocus()

    def say(self, text: str, undo: Callable[[], None] | None = None) -> None:
        """Show and speak what was done, with a way back if there is one; else the former way back stays."""
        if undo is not None:
            self._undo = undo
        self.actions_["undo"].setEnabled(self._undo is not None)
        self.said.say(text, undoable=undo is not None)

    def closeEvent(self, event: QCloseEvent) -> None:  # noqa: N802 - Qt's name
        self.signing.stop()
        self.answers.stop_all()
        self._settings.setValue(GEOMETRY, self.saveGeometry())
        self._settings.setValue(SPLIT, self.split.saveState())
        super().closeEvent(event)

    def changeEvent(self, event: QEvent) -> None:  # noqa: N802 - Qt's name
        super().changeEvent(event)
        if event.type() == QEvent.Type.PaletteChange and hasattr(self, "actions_"):
            self.actions_.draw_icons()

    # Making

    def _lay_out(self) -> None:
        self.split = QSplitter(Qt.Orientation.Horizontal)
        self.split.addWidget(self.sidebar)
        self.split.addWidget(self.page)
        self.split.setStretchFactor(0, 0)
        self.split.setStretchFactor(1, 1)
        letter = self.fontMetrics().averageCharWidth()
        self.split.setSizes([letter * 32, letter * 118])
        self.split.setCollapsible(1, False)
        self.stack.addWidget(self.split)
        self.stack.addWidget(self.signin)
        middle = QWidget()
        rows = QVBoxLayout(middle)
        rows.setContentsMargins(0, 0, 0, 0)
        rows.setSpacing(0)
        rows.addWidget(self.stack, 1)
        rows.addWidget(self.said)
        self.setCentralWidget(middle)
        foot = QHBoxLayout()
        button = QToolButton()
        button.setDefaultAction(self.actions_["options"])
        button.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextBesideIcon)
        button.setAutoRaise(True)
        button.setAccessibleName(self.actions_["options"].text())
        foot.addWidget(button)
        foot.addStretch(1)
        layout = self.sidebar.layout()
        if isinstance(layout, QVBoxLayout):
            layout.addLayout(foot)

    def _connect(self) -> None:
        desk = self.desk
        desk.said.connect(self.say)
        for trouble in (desk.trouble, self.files.trouble, self.signing.trouble):
            trouble.connect(lambda text: self.said.say(text, bad=True))
        self.files.said.connect(self.say)
        self.signing.said.connect(self.say)
        self.page.composer.attaches.connect(self.files.attach)
        self.page.said.connect(self.say)
        self.said.undo.clicked.connect(self._take_back)

    def _connect_actions(self) -> None:
        page, desk, thread = self.page, self.desk, self.page.thread_
        does: dict[str, Callable[[], object]] = {
            "new": self._new,
            "search": self._search,
            "rename": self.list.rename,
            "pin": self.list.pin,
            "delete_chat": self.list.delete,
            "undo": self._take_back,
            "previous_chat": lambda: self.list.step(-1),
            "next_chat": lambda: self.list.step(1),
            "sidebar": lambda: self.sidebar.setVisible(not self.sidebar.isVisible()),
            "find": page.find_bar.open_bar,
            "setup": self._open_setup,
            "copy_all": self.files.copy_all,
            "export": self.files.ask_export,
            "import": self.files.ask_import,
            "compose": page.composer.field.setFocus,
            "attach": self.files.ask_attach,
            "stop": page.stop,
            "latest": thread.to_end,
            "previous_message": lambda: thread.step(-1),
            "next_message": lambda: thread.step(1),
            "bigger": lambda: desk.change_settings(font_percent=min(250, desk.settings.font_percent + 10)),
            "smaller": lambda: desk.change_settings(font_percent=max(70, desk.settings.font_percent - 10)),
            "options": self._open_options,
            "sign_in": self.signing.sign_in,
            "shortcuts": self._open_shortcuts,
            "quit": self.close,
        }
        for name, do in does.items():
            self.actions_[name].triggered.connect(lambda _=False, do=do: do())
        for name, wish in (("copy_message", "copy"), ("edit_message", "edit"), ("regenerate", "regenerate"),
                           ("fork", "fork"), ("delete_message", "delete"), ("previous_branch", "previous"),
                           ("next_branch", "next")):  # fmt: skip
            self.actions_[name].triggered.connect(lambda _=False, wish=wish: page.wish(wish, page.current()))
        self.actions_["undo"].setEnabled(False)

    # What the actions do

    def _new(self) -> None:
        self.desk.open(None)
        self.page.composer.field.setFocus()

    def _search(self) -> None:
        self.sidebar.show()
        self.sidebar.search.setFocus()
        self.sidebar.search.selectAll()

    def _take_back(self) -> None:
        undo, self._undo = self._undo, None
        if undo is not None:
            undo()
            self.say("It is back.")

    def _open_setup(self) -> None:
        dialog = SetupDialog(self.desk.setup, self.desk.presets, self)
        dialog.saved_preset.connect(self.desk.save_preset)
        dialog.deleted_preset.connect(self.desk.delete_preset)
        follow = self.desk.presets_changed.connect(lambda: dialog.show_presets(self.desk.presets))
        dialog.accepted.connect(lambda: self.desk.change_setup(dialog.setup()))
        dialog.finished.connect(lambda: self.desk.presets_changed.disconnect(follow))
        dialog.finished.connect(dialog.deleteLater)
        dialog.open()

    def _open_options(self) -> None:
        dialog = OptionsDialog(self.desk.settings, self)
        dialog.changed.connect(self._change)
        dialog.erases.connect(lambda: self._ask_erase(dialog))
        dialog.signs_out.connect(dialog.accept)
        dialog.signs_out.connect(self.signing.sign_out)
        dialog.finished.connect(dialog.deleteLater)
        dialog.open()

    def _open_shortcuts(self) -> None:
        dialog = ShortcutsDialog(self.desk.settings.shortcuts, self)
        dialog.changed.connect(lambda shortcuts: self._change({"shortcuts": shortcuts}))
        dialog.finished.connect(dialog.deleteLater)
        dialog.open()

    def _ask_erase(self, parent: QWidget) -> None:
        box = QMessageBox(QMessageBox.Icon.Warning, "Delete all chats", "Delete every chat on this PC for good?",
                          QMessageBox.StandardButton.Cancel, parent)  # fmt: skip
        box.setInformativeText("They cannot be brought back.")
        erase = box.addButton("Delete all", QMessageBox.ButtonRole.DestructiveRole)
        erase.clicked.connect(self.erase)
        box.finished.connect(box.deleteLater)
        box.open()

    def erase(self) -> None:
        """Remove every chat for good."""
        self.answers.stop_all()
        self._undo = None
        self.desk.erase()
        self.say("All chats were deleted.")

    def _change(self, changes: dict[str, object]) -> None:
        before = self.desk.settings
        self.desk.change_settings(**changes)
        after = self.desk.settings
        if before.shortcuts != after.shortcuts:
            self.actions_.set_keys(after.shortcuts)
        if before.theme != after.theme:
            self.set_theme(after.theme)

    def set_theme(self, theme: Theme) -> None:
        """Show the windows in another theme; the system's is followed."""
        app = QApplication.instance()
        if isinstance(app, QApplication):
            palettes.choose(app, theme)

    def _apply_font(self) -> None:
        def apply() -> None:
            wanted = self._base_size * self.desk.settings.font_percent / 100
            font = self.font()
            if abs(font.pointSizeF() - wanted) > 0.05:
                font.setPointSizeF(wanted)
                self.setFont(font)
                rescale(self)
                self.actions_.draw_icons()
                self.page.composer.field.fit()
                self.page.thread_.recolour()

        self.desk.settings_changed.connect(apply)
        apply()
