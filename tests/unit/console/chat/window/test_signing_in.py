"""Signing in: the ways in, what happens when they fail, the way back, and what comes of the former account."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtCore import QSettings
from pytestqt.qtbot import QtBot

from console.chat.account import Account
from console.chat.client import ChatClient
from console.chat.window.desk import Desk
from console.chat.window.window import ChatWindow
from console.chat_link import ChatLink
from tests.conftest import ExpectLogs
from tests.support.api import CHAT_KEY, ScriptedModel, chat_app, says
from tests.support.chat_windows import Ring, Talk, chat_window, ended, send, served, sign_in

NOBODY = "http://127.0.0.1:9"


def kept(folder: Path, ring: Ring) -> tuple[bytes, dict[tuple[str, str], str]]:
    return (folder / "account.json").read_bytes(), dict(ring.kept)


def try_key(window: ChatWindow, url: str, key: str) -> None:
    window.signin.address.setText(url)
    window.signin.key.setText(key)
    window.signin.go.click()


@pytest.mark.parametrize(("url", "key", "said"), [(NOBODY, "x", "cannot be reached"), ("", "wrong", "not valid")])
def test_an_account_that_opens_nothing_takes_nothing_from_the_former(
    url: str, key: str, said: str, tmp_path: Path, qtbot: QtBot
) -> None:
    ring = Ring()
    with served(chat_app(ScriptedModel(says("Good day")))) as server, chat_window(tmp_path, ring) as window:
        sign_in(window, qtbot, server.url)
        qtbot.waitUntil(lambda: "You are signed in" in window.said.text.text())
        before = kept(tmp_path, ring)
        window.actions_["sign_in"].trigger()
        try_key(window, url or server.url, key)
        qtbot.waitUntil(lambda: said in window.signin.said.text())
        assert kept(tmp_path, ring) == before
        window.signin.back.click()
        send(window, "Hi")
        ended(window, qtbot)
        assert [message.text for message in window.desk.branch] == ["Hi", "Good day"]


@pytest.mark.parametrize(("key", "said"), [(CHAT_KEY, "for this once"), ("wrong", "not valid any more")])
def test_a_link_at_the_start_keeps_nothing_and_says_when_it_fails(
    key: str, said: str, tmp_path: Path, qtbot: QtBot
) -> None:
    ring = Ring()
    desk = Desk(tmp_path, Account(tmp_path, lambda: ring, keeps=False))
    window = ChatWindow(desk, QSettings(str(tmp_path / "window.ini"), QSettings.Format.IniFormat))
    try:
        with served(chat_app(ScriptedModel(says("x")))) as server:
            window.start(ChatLink(server.url, key))
            window.bring_up()
            assert window.page.composer.field.isVisible()
            line = window.said.text if key == CHAT_KEY else window.signin.said
            qtbot.waitUntil(lambda: said in line.text())
            assert line.isVisible()
            assert (ring.kept, (tmp_path / "account.json").exists()) == ({}, False)
    finally:
        window.close()
        desk.stop()
        window.deleteLater()


def test_who_reads_without_an_account_finds_the_way_back(tmp_path: Path, qtbot: QtBot) -> None:
    with served(chat_app(ScriptedModel(says("x")))) as server, chat_window(tmp_path) as window:
        qtbot.waitUntil(lambda: window.stack.currentWidget() is window.signin)
        window.signin.back.click()
        banner = window.page.banner
        assert banner.isVisible()
        assert "not signed in" in banner.text.text()
        banner.sign_in.click()
        assert window.stack.currentWidget() is window.signin
        window.signin.back.click()
        window.actions_["sign_in"].trigger()
        sign_in(window, qtbot, server.url)
        assert not banner.isVisible()
        window.actions_["sign_in"].trigger()
        window.signin.back.click()
        assert not banner.isVisible()


def test_who_goes_on_reading_while_it_is_tried_stays_there(talk: Talk) -> None:
    window = talk.window
    window.actions_["sign_in"].trigger()
    try_key(window, NOBODY, "x")
    window.signin.back.click()
    talk.qtbot.waitUntil(lambda: "cannot be reached" in window.said.text.text())
    assert window.stack.currentWidget() is window.split
    window.actions_["sign_in"].trigger()
    assert window.signin.go.text() == "Sign in"


def test_what_is_no_key_or_no_address_is_said_before_anything_is_asked(tmp_path: Path, qtbot: QtBot) -> None:
    with chat_window(tmp_path) as window:
        qtbot.waitUntil(lambda: window.stack.currentWidget() is window.signin)
        for url, key, said in (("https://a..b", "k", "no address"), (NOBODY, "sch\u00f6n", "no key")):
            try_key(window, url, key)
            assert said in window.signin.said.text()
            assert window.signin.go.isEnabled()


@pytest.mark.parametrize("content", [b"{", b'{"url": "http://127.0.0.1:9", "root_pem": "none"}'])
def test_a_kept_account_that_cannot_be_used_leads_to_signing_in_and_says_why(
    content: bytes, tmp_path: Path, qtbot: QtBot
) -> None:
    ring = Ring()
    ring.set_password("fallow-chat", NOBODY, "k")
    (tmp_path / "account.json").write_bytes(content)
    with chat_window(tmp_path, ring) as window:
        qtbot.waitUntil(lambda: "damaged" in window.signin.said.text())
        assert window.stack.currentWidget() is window.signin


def test_signing_out_says_that_the_key_stays(tmp_path: Path, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError

    ring = Ring()
    with served(chat_app(ScriptedModel(says("x")))) as server, chat_window(tmp_path, ring) as window:
        sign_in(window, qtbot, server.url)
        qtbot.waitUntil(lambda: bool(ring.kept) and (tmp_path / "account.json").exists())
        monkeypatch.setattr(ring, "delete_password", fails)
        window.signing.sign_out()
        qtbot.waitUntil(lambda: "the key is still in the keyring" in window.signin.said.text())


def test_nothing_waits_for_ever_for_what_nobody_thought_of(
    talk: Talk, monkeypatch: pytest.MonkeyPatch, expected_logs: ExpectLogs
) -> None:
    expected_logs("console.chat.window.bridge", "failed unexpectedly")

    def breaks(*_: object) -> None:
        raise LookupError("a cause nobody thought of")

    window = talk.window
    monkeypatch.setattr(ChatClient, "models", breaks)
    monkeypatch.setattr(ChatClient, "ask", breaks)
    talk.ask("Hi")
    assert talk.window.desk.branch[1].facts.problem_kind == "broken"
    window.desk.ask_models()
    talk.qtbot.waitUntil(lambda: "unknown reason (LookupError)" in window.page.banner.text.text())
    window.actions_["sign_in"].trigger()
    try_key(window, talk.server.url, CHAT_KEY)
    talk.qtbot.waitUntil(lambda: "unknown reason (LookupError)" in window.signin.said.text())
    assert window.signin.go.isEnabled()
