"""The page of the invites: a list, a new one with its text and QR code, an end to others."""

from __future__ import annotations

import time
from typing import Any

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QHBoxLayout, QPushButton
from shiboken6 import isValid

from agent.look.widgets import label
from console import calls
from console.api.admin import types as wire
from console.call import Call
from console.gui.asking import Orders, Question
from console.gui.feed import Feed
from console.gui.invites.new import NewInvite
from console.gui.page import Desk, Page
from console.gui.rows import Heading, KeyedModel, RowsView
from console.gui.secret import show_secret
from console.gui.states import States
from console.gui.times import moment_text
from console.registry.records import InviteRecord
from shard_export.library.counts import counted

INVITES_EVERY_S = 5.0
CREATED_COLUMN = 4
HOW = "On the PC: open the Fallow tray and join a fleet with the text, or run fallow-agent enrol with the file."


class InviteModel(KeyedModel[InviteRecord]):
    """Invites without their secrets."""

    headings = (
        Heading("State", 12), Heading("For", 30), Heading("Used", 10, number=True), Heading("PCs are let in", 36),
        Heading("Made", 25), Heading("By", 20), Heading("Ends", 25), Heading("Tags", 24), Heading("Id", 20),
    )  # fmt: skip

    def key_of(self, item: InviteRecord) -> str:
        return item.token_id

    def text(self, item: InviteRecord, column: int) -> str:
        texts = (
            state_of(item, time.time()), item.hint, f"{item.uses} of {item.max_uses}", approval_text(item),
            moment_text(item.created_s), item.created_by, moment_text(item.expires_s), ", ".join(item.tags),
            item.token_id,
        )  # fmt: skip
        return texts[column]

    def sort_key(self, item: InviteRecord, column: int) -> Any:
        return item.uses if self.headings[column].number else self.text(item, column)


def state_of(invite: InviteRecord, now_s: float) -> str:
    """Say in one word whether PCs can use an invite."""
    if invite.revoked_s is not None:
        return "revoked"
    if invite.expires_s <= now_s:
        return "ended"
    return "used up" if invite.uses >= invite.max_uses else "open"


def approval_text(invite: InviteRecord) -> str:
    """Say how a PC with the invite is let in."""
    if invite.approve == "manual":
        return "by an administrator"
    rule = invite.rule
    only = [*rule.networks, *rule.names, *(["a protected key"] if rule.keyring else [])]
    return "at once" + (f", only {', '.join(only)}" if only else "")


class InvitesPage(Page):
    """What is asked for here is asked anew every few seconds, because PCs use invites meanwhile."""

    name = "invites"
    heading = "Invites"
    icon = "invites"

    def __init__(self, desk: Desk) -> None:
        self.invites = Feed(desk.bridge, calls.invites(), INVITES_EVERY_S)
        super().__init__(desk, self.invites)
        self.model = InviteModel(self)
        self.table = RowsView("Invites", self.model)
        self.table.sort_by(CREATED_COLUMN, Qt.SortOrder.DescendingOrder)
        self.table.selectionModel().selectionChanged.connect(self._follow_choice)
        self.states = States(self.table)
        self.states.follow(self.invites)
        self._orders = Orders(desk.bridge, self)
        self._orders.said.connect(self.said)
        self.new = QPushButton("&New invite…")
        self.new.clicked.connect(self._ask_new)
        self.revoke = QPushButton("&Revoke…")
        self.revoke.clicked.connect(self._ask_revoke)
        across = QHBoxLayout()
        across.addWidget(
            label("A PC joins with an invite; it is a secret until it is used up or ended.", quiet=True), 1
        )
        across.addWidget(self.new)
        across.addWidget(self.revoke)
        self.rows.addLayout(across)
        self.rows.addWidget(self.states, 1)
        self.invites.came.connect(self._show)
        self._follow_choice()

    def _show(self) -> None:
        invites = self.invites.latest
        self.model.take(invites)
        if invites:
            self.states.show_content()
        elif self.desk.may("operate"):
            self.states.show_empty("There is no invite yet.", "&Invite PCs…", self._ask_new)
        else:
            self.states.show_empty("There is no invite yet.")
        self._follow_choice()

    def _open_ones(self) -> list[InviteRecord]:
        chosen = [self.model.find(key) for key in self.table.chosen()]
        return [one for one in chosen if one is not None and state_of(one, time.time()) in ("open", "used up")]

    def _follow_choice(self) -> None:
        may = self.desk.may("operate")
        self.new.setEnabled(may)
        self.revoke.setEnabled(may and bool(self._open_ones()))

    def _ask_new(self) -> None:
        NewInvite(self, self.desk.bridge, self._made).open()

    def _made(self, invite: wire.Invite) -> None:
        self._show_secret(invite)
        if isValid(self):
            self.invites.now()

    def _show_secret(self, invite: wire.Invite) -> None:
        about = f"{HOW} It ends {moment_text(invite.expires_s)}."
        show_secret(self, "The invite", about, invite.text, "fallow-invite.txt")

    def _ask_revoke(self) -> None:
        invites = self._open_ones()
        question = Question(
            self,
            f"Revoke {counted(len(invites), 'invite')}?",
            "No further PC can use it. PCs that used it stay in the fleet.",
            "Revoke",
            lines=[f"{one.hint or one.token_id}   used {one.uses} of {one.max_uses}" for one in invites],
        )
        orders: list[tuple[str, Call[None]]] = [
            (one.hint or one.token_id, calls.revoke_invite(one.token_id)) for one in invites
        ]
        done = f"{counted(len(invites), 'invite is', 'invites are')} revoked."
        question.answered.connect(lambda *_: self._orders.carry_out(orders, done, self.invites.now))
        question.open()
