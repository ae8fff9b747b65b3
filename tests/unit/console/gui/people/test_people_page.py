"""console.gui.people: people, roles and keys, with a real service."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PySide6.QtWidgets import QFormLayout, QLabel, QWidget
from pytestqt.qtbot import QtBot

from console.chat_link import read_link
from console.gui.asking import Question
from console.gui.page import Desk, Page
from console.gui.people.forms import ChangeRole, KeyLimits, LimitFields, NewKey, NewPassword, NewUser
from console.gui.people.models import key_state, quota_text
from console.gui.people.page import PeoplePage
from console.gui.secret import SecretDialog
from console.registry.records import ApiKey, Quota
from tests.support.console_thread import ConsoleThread

PASSWORD = "a long enough password"
W = TypeVar("W", bound=QWidget)


@pytest.fixture
def page(console: ConsoleThread, desk: Desk, shown: Callable[[Page], Page]) -> PeoplePage:
    made = shown(PeoplePage(desk))
    assert isinstance(made, PeoplePage)
    return made


def opened(page: PeoplePage, kind: type[W]) -> W:
    found = [one for one in page.findChildren(kind) if one.isVisible()]
    assert len(found) == 1
    return found[0]


def closed(page: PeoplePage, kind: type[QWidget]) -> bool:
    return not [one for one in page.findChildren(kind) if one.isVisible()]


def test_a_person_is_added_gets_another_role_and_is_disabled(page: PeoplePage, qtbot: QtBot) -> None:
    people = page.people
    said: list[str] = []
    page.said.connect(lambda text, _: said.append(text))
    qtbot.waitUntil(lambda: "Nobody is added yet" in people.states.text.text())
    people.buttons["new"].click()
    form = opened(page, NewUser)
    form.name.setText("olga")
    form.password.setText(PASSWORD)
    form.again.setText("another")
    form.yes.click()
    assert "not the same" in form.said.text()
    form.again.setText(PASSWORD)
    form.yes.click()
    qtbot.waitUntil(lambda: page.user_model.rowCount() == 1)
    assert [page.user_model.index(0, column).data() for column in range(3)] == ["olga", "user", "may sign in"]
    people.table.selectRow(0)
    people.buttons["role"].click()
    role = opened(page, ChangeRole)
    role.role.setCurrentIndex(role.role.findData("owner"))
    role.yes.click()
    qtbot.waitUntil(lambda: page.user_model.index(0, 1).data() == "owner")
    people.buttons["password"].click()
    password = opened(page, NewPassword)
    password.password.setText("short")
    password.again.setText("short")
    password.yes.click()
    qtbot.waitUntil(lambda: bool(password.said.text()))
    assert password.isVisible()
    password.password.clear()
    password.again.clear()
    password.yes.click()
    assert "tick that it is taken away" in password.said.text()
    password.none.setChecked(True)
    password.yes.click()
    qtbot.waitUntil(lambda: closed(page, NewPassword))
    assert said[-1] == "olga has no password any more, and cannot sign in."
    people.buttons["password"].click()
    password = opened(page, NewPassword)
    for field in (password.password, password.again):
        field.setText(PASSWORD * 2)
    password.yes.click()
    qtbot.waitUntil(lambda: closed(page, NewPassword))
    assert said[-1] == "olga has another password."
    people.buttons["disable"].click()
    opened(page, Question).yes.click()
    qtbot.waitUntil(lambda: page.user_model.index(0, 2).data() == "disabled")
    people.buttons["enable"].click()
    qtbot.waitUntil(lambda: page.user_model.index(0, 2).data() == "may sign in")


def test_a_key_is_made_with_limits_shown_once_limited_anew_and_revoked(page: PeoplePage, qtbot: QtBot) -> None:
    keys = page.api_keys
    page.tabs.setCurrentWidget(keys)
    qtbot.waitUntil(lambda: page.key_model.rowCount() >= 1)  # the local administrator's
    keys.buttons["new"].click()
    form = opened(page, NewKey)
    form.yes.click()
    assert "Type a name" in form.said.text()
    form.name.setText("wiki")
    form.life.setCurrentIndex(2)
    form.limits.streams.setValue(2)
    form.limits.limited.setChecked(True)
    form.limits.tokens.setValue(100_000)
    form.limits.models.setText("small, large")
    form.yes.click()
    qtbot.waitUntil(lambda: not closed(page, SecretDialog))
    shown = opened(page, SecretDialog)
    secret = shown.text.toPlainText()
    assert len(secret) > 20
    shown.reject()
    qtbot.waitUntil(lambda: any(key.name == "wiki" for key in page.key_model.items))
    (made,) = (key for key in page.key_model.items if key.name == "wiki")
    assert made.quota == Quota(2, 100_000, ["small", "large"])
    assert made.expires_s is not None
    keys.table.choose(made.key_id)
    keys.buttons["limits"].click()
    limits = opened(page, KeyLimits)
    assert limits.limits.models.text() == "small, large"
    limits.limits.limited.setChecked(False)
    limits.yes.click()
    qtbot.waitUntil(lambda: found(page, made.key_id).quota == Quota(2, None, ["small", "large"]))
    keys.buttons["revoke"].click()
    opened(page, Question).yes.click()
    qtbot.waitUntil(lambda: found(page, made.key_id).revoked_s is not None)


def found(page: PeoplePage, key_id: str) -> ApiKey:
    key = page.key_model.find(key_id)
    assert key is not None
    return key


def test_a_chat_key_is_handed_over_as_a_link(page: PeoplePage, qtbot: QtBot) -> None:
    qtbot.waitUntil(lambda: page.key_model.rowCount() >= 1)
    page.api_keys.buttons["new"].click()
    form = opened(page, NewKey)
    form.name.setText("for vera")
    form.link.setChecked(True)
    form.yes.click()
    qtbot.waitUntil(lambda: not closed(page, SecretDialog))
    shown = opened(page, SecretDialog)
    assert any("works on this PC only" in words.text() for words in shown.findChildren(QLabel))
    link = read_link(shown.text.toPlainText())
    assert link.url == page.desk.bridge.access.url
    assert link.key


def test_a_chat_link_is_shown_though_its_dialog_was_closed_too_early(page: PeoplePage, qtbot: QtBot) -> None:
    qtbot.waitUntil(lambda: page.key_model.rowCount() >= 1)
    page.api_keys.buttons["new"].click()
    form = opened(page, NewKey)
    form.name.setText("for olaf")
    form.link.setChecked(True)
    form.yes.click()
    form.reject()
    qtbot.waitUntil(lambda: not closed(page, SecretDialog))
    assert read_link(opened(page, SecretDialog).text.toPlainText()).key


@given(st.integers(0, 1 << 53))
def test_a_limit_that_nobody_touches_stays_as_it_is(qapp: object, tokens: int) -> None:
    form = QFormLayout()
    quota = Quota(2, tokens, ["small"])
    fields = LimitFields(form, quota)
    fields.streams.setValue(3)
    limits = fields.limits()
    assert (limits.streams, limits.tokens_per_day, limits.models) == (3, tokens, ["small"])


def test_limits_and_states_are_said_in_words() -> None:
    assert quota_text(Quota()) == "none"
    assert quota_text(Quota(2, 100_000, ["small"])) == "2 at once, 100,000 tokens a day, only small"
    key = ApiKey("k", "k", ["chat"], 0.0, 10.0, None)
    assert (key_state(key, 5.0), key_state(key, 10.0)) == ("live", "ended")
