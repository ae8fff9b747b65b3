"""The open chat: its model, its messages, the text field, and finding words in it. GUI thread."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QTimer, Signal
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import (
    QHBoxLayout,
    QMenu,
    QStackedLayout,
    QToolButton,
    QVBoxLayout,
    QWidget,
)

from agent.look.widgets import announce, label
from console.chat.records import Attachment, Message
from console.chat.sentences import Sentences
from console.chat.tokens import used
from console.chat.window.actions import Actions
from console.chat.window.answers import Answers
from console.chat.window.composer import Composer
from console.chat.window.desk import Desk
from console.chat.window.findbar import FindBar
from console.chat.window.finder import Finder
from console.chat.window.message import Shown
from console.chat.window.modelbox import ModelBox
from console.chat.window.states import Banner, EmptyPage
from console.chat.window.thread import Thread

METER_MS = 300
MENU = ("rename", "pin", "find", "copy_all", "export", "import", "", "delete_chat", "undo", "", "sign_in", "options",
        "shortcuts", "quit")  # fmt: skip


class ChatPage(QWidget):
    """Shows what the desk has open."""

    wants_sign_in = Signal()
    said = Signal(str)

    def __init__(self, desk: Desk, answers: Answers, actions: Actions) -> None:
        super().__init__()
        self.desk, self.answers, self._actions = desk, answers, actions
        self.thread_ = Thread()
        self.composer = Composer(actions)
        self.find_bar = FindBar()
        self._finder = Finder(desk, answers, self.thread_, self.find_bar)
        self.model = ModelBox(desk)
        self.heading = label(bold=True)
        self.banner = Banner()
        self.empty = EmptyPage()
        self._sentences: dict[str, Sentences] = {}
        self._shown_chat: str | None = ""
        self._meter = QTimer(self)
        self._meter.setInterval(METER_MS)
        self._meter.timeout.connect(self._show_meter)
        self._lay_out()
        self._connect()
        self._settle()

    # What the actions of the window do here

    def current(self) -> str:
        """Return the id of the message that has, or had, the focus; else of the last one."""
        branch = self.desk.branch
        ids = [message.id for message in branch]
        return self.thread_.current if self.thread_.current in ids else (ids[-1] if ids else "")

    def wish(self, wish: str, message_id: str) -> None:
        """Do what somebody wants with a message."""
        if wish == "sign_in":
            self.wants_sign_in.emit()
        elif wish == "pick_model":
            self.model.showPopup()
        elif message_id in self.desk.tree():
            does: dict[str, Callable[[str, str], None]] = {
                "copy": self._copy,
                "previous": self._other,
                "next": self._other,
            }
            # What would change a message has to wait until it is whole.
            if self.answers.of_message(message_id) is None:
                does |= {
                    "edit": self._edit,
                    "regenerate": lambda _, id_: self.answers.regenerate(id_),
                    "fork": lambda _, id_: self.desk.fork(id_),
                    "delete": self._delete,
                }
            if wish in does:
                does[wish](wish, message_id)

    def stop(self) -> None:
        """Stop the open chat's answer."""
        if self.desk.open_id is not None:
            self.answers.stop(self.desk.open_id)

    # Inside

    def _copy(self, _: str, message_id: str) -> None:
        (message,) = self.answers.so_far([self.desk.tree()[message_id]])
        QGuiApplication.clipboard().setText(message.content())
        self.said.emit("The message was copied.")

    def _edit(self, _: str, message_id: str) -> None:
        self.thread_.focus_message(message_id)
        if (view := self.thread_.view_of(message_id)) is not None:
            view.begin_edit()

    def _delete(self, _: str, message_id: str) -> None:
        running = self.answers.running.get(self.desk.open_id or "")
        if running is not None and running.message in self.desk.tree().below(message_id):
            self.answers.stop(running.message.chat_id)
        self.desk.delete_message(message_id)

    def _other(self, wish: str, message_id: str) -> None:
        other = self.desk.tree().other(message_id, 1 if wish == "next" else -1)
        self.desk.show_branch(other)
        self.thread_.focus_message(other)

    def _lay_out(self) -> None:
        margin = round(self.fontMetrics().height() * 0.5)
        head = QHBoxLayout()
        head.addWidget(self.heading, 1)
        head.addWidget(self.model)
        head.addWidget(self._make_menu())
        head.setContentsMargins(margin, 0, margin, 0)
        self._stack = QStackedLayout()
        self._stack.addWidget(self.empty)
        self._stack.addWidget(self.thread_)
        below = QHBoxLayout()
        below.setContentsMargins(margin, 0, margin, 0)
        below.addWidget(self.composer)
        rows = QVBoxLayout(self)
        rows.setContentsMargins(0, margin, 0, margin)
        rows.addLayout(head)
        rows.addWidget(self.find_bar)
        rows.addLayout(self._stack, 1)
        rows.addWidget(self.banner)
        rows.addLayout(below)

    def _make_menu(self) -> QToolButton:
        menu = QMenu(self)
        for name in MENU:
            if name:
                menu.addAction(self._actions[name])
            else:
                menu.addSeparator()
        button = QToolButton()
        button.setDefaultAction(self._actions["menu"])
        button.setAccessibleName("Chat menu")
        button.setAutoRaise(True)
        button.setMenu(menu)
        button.setPopupMode(QToolButton.ToolButtonPopupMode.InstantPopup)
        self._actions["menu"].triggered.connect(button.showMenu)
        return button

    def _connect(self) -> None:
        desk, answers, thread = self.desk, self.answers, self.thread_
        desk.opened.connect(self._open)
        desk.branch_changed.connect(lambda: self._show_branch(anew=False))
        desk.chats_changed.connect(self._show_heading)
        desk.message_changed.connect(self._replace)
        desk.models_changed.connect(self._show_meter)
        desk.connection_changed.connect(self._show_connection)
        desk.settings_changed.connect(self._settle)
        answers.grew.connect(self._grow)
        answers.noted.connect(self._note)
        answers.began.connect(self._begun)
        answers.ended.connect(self._ended)
        thread.wants.connect(self.wish)
        thread.edited.connect(answers.edit)
        self.composer.sent.connect(self._send)
        self.composer.typed.connect(desk.keep_draft)
        self.composer.typed.connect(lambda _: self._show_meter())
        self.composer.files_changed.connect(desk.keep_files)
        desk.files_changed.connect(self._show_files)
        self.composer.field.scrolls.connect(thread.scroll_by_key)
        self.banner.retry.clicked.connect(desk.ask_models)
        self.banner.sign_in.clicked.connect(self.wants_sign_in)
        self.find_bar.closed.connect(self.composer.field.setFocus)

    def _open(self) -> None:
        self._show_branch(anew=self.desk.open_id != self._shown_chat or not self.thread_.items)
        self._shown_chat = self.desk.open_id
        self.composer.set_text(self.desk.draft)
        self.composer.set_files(self.desk.files)
        self.composer.set_running(self.desk.open_id in self.answers.running)
        self._show_heading()
        self.model.show_models()
        self._show_meter()

    def _show_heading(self) -> None:
        self.heading.setText(self.desk.chat.title if self.desk.chat else "New chat")

    def _show_branch(self, *, anew: bool) -> None:
        branch = self.desk.branch
        self.thread_.show_branch([self._shown(message) for message in branch], anew=anew)
        self.empty.show_state(reading=self.desk.is_reading or not self.desk.is_loaded, broken=self.desk.broken)
        self._stack.setCurrentWidget(self.thread_ if branch else self.empty)
        self._show_meter()

    def _shown(self, message: Message) -> Shown:
        running = self.answers.of_message(message.id)
        fork = self.desk.tree(message.chat_id).fork(message.id)
        if running is None:
            return Shown(message, fork, retry_at_s=self.answers.retry_at_s.get(message.id, 0.0))
        return Shown(message, fork, "".join(running.text), running.note, running.done, runs=True)

    def _replace(self, message: Message) -> None:
        self.thread_.update_message(self._shown(message))
        self._show_meter()

    def _grow(self, message_id: str, text: str) -> None:
        running = self.answers.of_message(message_id)
        if running is None or running.message.chat_id != self.desk.open_id:
            return
        self.thread_.grow(message_id, text)
        if self.desk.settings.announces:
            for sentence in self._sentences.setdefault(message_id, Sentences()).add(text):
                announce(self.thread_, sentence)

    def _note(self, message_id: str) -> None:
        running = self.answers.of_message(message_id)
        if running is not None and running.message.chat_id == self.desk.open_id:
            self.thread_.note(self._shown(running.message))
            if running.note and self.desk.settings.announces:
                announce(self.thread_, running.note)

    def _begun(self, chat_id: str) -> None:
        if chat_id == self.desk.open_id:
            self.composer.set_running(True)
            self._replace(self.answers.running[chat_id].message)
            self.thread_.to_end()
        self._meter.start()

    def _ended(self, chat_id: str, message_id: str) -> None:
        sentences = self._sentences.pop(message_id, None)
        if chat_id == self.desk.open_id:
            self.composer.set_running(False)
            # Whoever deleted the question has deleted the answer.
            problem = self.desk.tree()[message_id].facts.problem if message_id in self.desk.tree() else ""
            if self.desk.settings.announces:
                for sentence in [*(sentences.end() if sentences is not None else []), *([problem] if problem else [])]:
                    announce(self.thread_, sentence)
        if not self.answers.running:
            self._meter.stop()
        self._show_meter()

    def _show_files(self) -> None:
        self.composer.set_files(self.desk.files)
        self._show_meter()

    def _send(self, text: str, attachments: list[Attachment]) -> None:
        if self.desk.is_reading:
            return
        if not self.desk.setup.model:
            self.said.emit("There is no model to ask. Sign in, or wait until an administrator deploys one.")
            return
        self.composer.taken()
        self.desk.keep_draft("")
        self.answers.send(text, attachments)

    def _settle(self) -> None:
        settings = self.desk.settings
        self.composer.field.enter_sends = settings.enter_sends
        how = "Enter sends, Shift+Enter breaks the line" if settings.enter_sends else "Ctrl+Enter sends"
        self.composer.field.setToolTip(how)
        if self.thread_.width_wanted != settings.width:
            self.thread_.set_width(settings.width)

    def _show_meter(self) -> None:
        desk = self.desk
        files = sum(len(file.text) for file in self.composer.files)
        tokens, estimated = used(desk.setup, desk.branch, len(self.composer.field.toPlainText()) + files)
        running = self.answers.running.get(desk.open_id or "")
        if running is not None:
            tokens += running.pieces
        model = desk.model(desk.setup.model)
        speed = running.tokens_per_second if running is not None else 0.0
        limit = model.context_tokens if model is not None else 0
        self.composer.meter.show_used(tokens, limit, estimated=estimated or running is not None, speed=speed)

    def _show_connection(self) -> None:
        self.banner.show_problem(self.desk.problem)
