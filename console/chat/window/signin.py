"""The first page, and the way back after a key ran out: a chat link, or an address and a key. GUI thread."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QPalette
from PySide6.QtWidgets import QFormLayout, QLineEdit, QPushButton, QVBoxLayout, QWidget

from agent.look.widgets import announce, heading, label, title
from console.chat_link import NOT_PRIVATE, ChatLink, ChatLinkInvalid, is_key, is_private, read_link, server_url


class SignInPage(QWidget):
    """Emits `signs_in` with what was typed; shows what came of it."""

    signs_in = Signal(object)
    gives_up = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.title = title("Sign in to chat")
        self.link = _secret("Chat link", "https://…#pin=…&key=…")
        self.link.textChanged.connect(self._enable)
        self.address = QLineEdit()
        self.address.setAccessibleName("Address of the server")
        self.address.setPlaceholderText("https://console.example:8460")
        self.key = _secret("API key", "")
        self.address.textChanged.connect(self._enable)
        self.key.textChanged.connect(self._enable)
        self.go = QPushButton("Sign in")
        self.go.setDefault(True)
        self.go.clicked.connect(self._go)
        self.back = QPushButton("Read my chats without signing in")
        self.back.clicked.connect(self.gives_up)
        for field in (self.link, self.address, self.key):
            field.returnPressed.connect(self._go)
        self.said = label()
        self.said.setForegroundRole(QPalette.ColorRole.BrightText)
        self.said.hide()
        self._lay_out()
        self._enable()

    def say(self, text: str) -> None:
        """Show why it did not work, or what is going on."""
        self.said.setText(text)
        self.said.setVisible(bool(text))
        if text:
            announce(self.said, text)

    def set_busy(self, busy: bool) -> None:
        """Wait for the answer."""
        self.go.setText("Signing in…" if busy else "Sign in")
        self._busy = busy
        self._enable()

    def clear(self) -> None:
        """Forget the secrets."""
        self.link.clear()
        self.key.clear()
        self.say("")

    _busy = False

    def _lay_out(self) -> None:
        form = QFormLayout()
        form.addRow("Chat link", self.link)
        other = QFormLayout()
        other.addRow("Address", self.address)
        other.addRow("API key", self.key)
        rows = QVBoxLayout()
        rows.addStretch(1)
        rows.addWidget(self.title)
        rows.addWidget(label("Your administrator gives you a chat link. Paste it here, and keep it to yourself."))
        rows.addLayout(form)
        rows.addWidget(heading("Or with a key"))
        rows.addLayout(other)
        rows.addWidget(label("The key is kept in this PC's keyring. Chats stay on this PC.", quiet=True))
        rows.addWidget(self.said)
        rows.addWidget(self.go, 0, Qt.AlignmentFlag.AlignLeft)
        rows.addWidget(self.back, 0, Qt.AlignmentFlag.AlignLeft)
        rows.addStretch(2)
        column = QWidget()
        column.setLayout(rows)
        column.setMaximumWidth(self.fontMetrics().averageCharWidth() * 80)
        outer = QVBoxLayout(self)
        outer.addWidget(column, 1, Qt.AlignmentFlag.AlignHCenter)
        column.setMinimumWidth(min(self.fontMetrics().averageCharWidth() * 60, 900))

    def _enable(self) -> None:
        by_link, by_key = bool(self.link.text()), bool(self.address.text() and self.key.text())
        self.go.setEnabled((by_link or by_key) and not self._busy)

    def _go(self) -> None:
        if not self.go.isEnabled():
            return
        try:
            link = read_link(self.link.text()) if self.link.text() else None
        except ChatLinkInvalid as error:
            self.say(str(error))
            return
        if link is None:
            url = server_url(self.address.text())
            if not url:
                self.say("This is no address of a server; it looks like https://console.example:8460.")
                return
            key = self.key.text().strip()
            if not is_key(key):
                self.say("This is no key; copy all of it, and nothing beside it.")
                return
            link = ChatLink(url, key)
        if not is_private(link.url):
            self.say(NOT_PRIVATE)
            return
        self.say("")
        self.set_busy(True)
        self.signs_in.emit(link)


def _secret(name: str, hint: str) -> QLineEdit:
    field = QLineEdit()
    field.setAccessibleName(name)
    field.setPlaceholderText(hint)
    field.setEchoMode(QLineEdit.EchoMode.Password)
    return field
