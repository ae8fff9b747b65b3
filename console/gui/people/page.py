"""The page of people and API keys."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from PySide6.QtWidgets import QHBoxLayout, QPushButton, QTabWidget, QVBoxLayout, QWidget
from shiboken6 import isValid

from agent.look.widgets import label
from console import calls
from console.addresses import reach_text
from console.api.admin import types as wire
from console.call import Call
from console.chat_link import ChatLink
from console.errors import ClientError
from console.gui.alive import alive
from console.gui.asking import Orders, Question
from console.gui.feed import Feed
from console.gui.page import Desk, Page
from console.gui.people.forms import ChangeRole, KeyLimits, NewKey, NewPassword, NewUser
from console.gui.people.models import KeyModel, UserModel, key_state
from console.gui.rows import KeyedModel, RowsView
from console.gui.secret import show_secret
from console.gui.states import States
from console.registry.records import ApiKey, User
from shard_export.library.counts import counted

PEOPLE_EVERY_S = 10.0
KEY_ABOUT = "Programs send it as their API key: Authorization: Bearer KEY."
LINK_ABOUT = "Who has it opens it in fallow-chat: address, certificate and key are in it."


class PeoplePage(Page):
    """Two tables, each with what can be done to the selected rows."""

    name = "people"
    heading = "People and keys"
    icon = "people"
    scope = "admin"

    def __init__(self, desk: Desk) -> None:
        self.users = Feed(desk.bridge, calls.users(), PEOPLE_EVERY_S)
        self.keys = Feed(desk.bridge, calls.keys(), PEOPLE_EVERY_S)
        super().__init__(desk, self.users, self.keys)
        self._orders = Orders(desk.bridge, self)
        self._orders.said.connect(self.said)
        self.user_model, self.key_model = UserModel(self), KeyModel(self)
        self.people = _List(
            "People",
            self.user_model,
            self.users,
            buttons=(
                ("new", "&New person…", self._new_user),
                ("role", "&Role…", self._change_role),
                ("password", "&Password…", self._change_password),
                ("disable", "&Disable…", self._disable),
                ("enable", "&Enable", self._enable),
            ),
            about="Who signs in, and what they may do.",
            empty="Nobody is added yet. On this PC, whoever may read the data folder is administrator.",
        )
        self.api_keys = _List(
            "API keys",
            self.key_model,
            self.keys,
            buttons=(
                ("new", "&New key…", self._new_key),
                ("limits", "&Limits…", self._change_limits),
                ("revoke", "Re&voke…", self._revoke),
            ),
            about="For programs and for the chat window.",
            empty="There is no key yet.",
        )
        self.tabs = QTabWidget()
        self.tabs.setDocumentMode(True)  # without Fusion's frame, whose ground is another than the window's
        self.tabs.addTab(self.people, "Pe&ople")
        self.tabs.addTab(self.api_keys, "API &keys")
        self.rows.addWidget(self.tabs, 1)
        self.people.table.selectionModel().selectionChanged.connect(self._follow_choice)
        self.api_keys.table.selectionModel().selectionChanged.connect(self._follow_choice)
        for one in (self.users, self.keys):
            one.came.connect(self._follow_choice)
        self._follow_choice()

    def _chosen_users(self) -> list[User]:
        return [user for name in self.people.table.chosen() if (user := self.user_model.find(name)) is not None]

    def _chosen_keys(self) -> list[ApiKey]:
        chosen = [key for name in self.api_keys.table.chosen() if (key := self.key_model.find(name)) is not None]
        return [key for key in chosen if key_state(key, time.time()) != "revoked"]

    def _follow_choice(self) -> None:
        users, keys = self._chosen_users(), self._chosen_keys()
        able = {
            "role": len(users) == 1,
            "password": len(users) == 1,
            "disable": any(user.disabled_s is None for user in users),
            "enable": any(user.disabled_s is not None for user in users),
        }
        for name, yes in able.items():
            self.people.buttons[name].setEnabled(yes)
        self.api_keys.buttons["limits"].setEnabled(len(keys) == 1)
        self.api_keys.buttons["revoke"].setEnabled(bool(keys))

    # People

    def _new_user(self) -> None:
        NewUser(self, self.desk.bridge, self._user_done("is added")).open()

    def _change_role(self) -> None:
        ChangeRole(self, self.desk.bridge, self._chosen_users()[0], self._user_done("has another role")).open()

    def _change_password(self) -> None:
        name = self._chosen_users()[0].name

        def done(_: User) -> None:
            self.said.emit(f"{name} {form.came_of_it}.", False)
            self.users.now()

        form = NewPassword(self, self.desk.bridge, name, alive(self, done))
        form.open()

    def _user_done(self, what: str) -> Callable[[User], None]:
        def done(user: User) -> None:
            self.said.emit(f"{user.name} {what}.", False)
            self.users.now()

        return alive(self, done)

    def _disable(self) -> None:
        users = [user for user in self._chosen_users() if user.disabled_s is None]
        question = Question(
            self,
            f"Disable {counted(len(users), 'person', 'people')}?",
            "Their sign-ins end, and their keys are refused until they are enabled again.",
            "Disable",
            lines=[f"{user.name}   {user.role}" for user in users],
        )
        question.answered.connect(lambda *_: self._set_disabled(users, True))
        question.open()

    def _enable(self) -> None:
        self._set_disabled([user for user in self._chosen_users() if user.disabled_s is not None], False)

    def _set_disabled(self, users: Sequence[User], disabled: bool) -> None:
        change = wire.UserChange(disabled=disabled)
        orders: list[tuple[str, Call[Any]]] = [(user.name, calls.change_user(user.name, change)) for user in users]
        done = f"{counted(len(users), 'person is', 'people are')} {'disabled' if disabled else 'enabled'}."
        self._orders.carry_out(orders, done, self.users.now)

    # Keys

    def _new_key(self) -> None:
        def made(key: wire.Key) -> None:
            if isValid(self):
                self.keys.now()
            if dialog.wants_link:
                self._show_link(key)
            else:
                show_secret(self, f"The key {key.key.name}", KEY_ABOUT, key.secret, "fallow-key.txt")

        dialog = NewKey(self, self.desk.bridge, [user.name for user in self.user_model.items], made)
        dialog.open()

    def _show_link(self, key: wire.Key) -> None:
        url = self.desk.bridge.access.url

        def show(pin: str) -> None:
            link = ChatLink(url, key.secret, pin).text()
            about = f"{LINK_ABOUT} {reach_text(url)}".strip()
            show_secret(self, f"The chat link {key.key.name}", about, link, "fallow-chat-link.txt")

        def without_pin(error: ClientError) -> None:
            about = f"The key is made, but not the link: {error} {KEY_ABOUT}"
            show_secret(self, f"The key {key.key.name}", about, key.secret, "fallow-key.txt")

        if url.startswith("https") and self.desk.bridge.access.authority is not None:
            self.desk.bridge.ask(calls.authority(), lambda view: show(view.pin), without_pin)
        else:
            show("")

    def _change_limits(self) -> None:
        key = self._chosen_keys()[0]

        def done(changed: ApiKey) -> None:
            self.said.emit(f"The key {changed.name} has other limits.", False)
            self.keys.now()

        KeyLimits(self, self.desk.bridge, key, alive(self, done)).open()

    def _revoke(self) -> None:
        keys = self._chosen_keys()
        question = Question(
            self,
            f"Revoke {counted(len(keys), 'key')}?",
            "Programs that use them are refused from now on; it cannot be taken back.",
            "Revoke",
            lines=[f"{key.name}   {key.key_id}" for key in keys],
        )
        orders: list[tuple[str, Call[Any]]] = [(key.name, calls.revoke_key(key.key_id)) for key in keys]
        done = f"{counted(len(keys), 'key is', 'keys are')} revoked."
        question.answered.connect(lambda *_: self._orders.carry_out(orders, done, self.keys.now))
        question.open()


class _List(QWidget):
    """A table with buttons above and a sentence in its place when it is empty."""

    def __init__(
        self,
        name: str,
        model: KeyedModel[Any],
        feed: Feed,
        *,
        buttons: Sequence[tuple[str, str, Callable[[], None]]],
        about: str,
        empty: str,
    ) -> None:
        super().__init__()
        self._model, self._feed, self._empty = model, feed, empty
        self.table = RowsView(name, model)
        self.table.sort_by(0)
        self.states = States(self.table)
        self.states.follow(feed)
        self.buttons: dict[str, QPushButton] = {}
        across = QHBoxLayout()
        across.addWidget(label(about, quiet=True), 1)
        for key, text, do in buttons:
            self.buttons[key] = QPushButton(text)
            self.buttons[key].clicked.connect(do)
            across.addWidget(self.buttons[key])
        rows = QVBoxLayout(self)
        rows.addLayout(across)
        rows.addWidget(self.states, 1)
        feed.came.connect(self._show)

    def _show(self) -> None:
        self._model.take(self._feed.latest)
        if self._feed.latest:
            self.states.show_content()
        else:
            self.states.show_empty(self._empty)
