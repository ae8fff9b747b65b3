"""console.gui.connecting and kept: attempts that are given up, and keyrings that do not answer."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from keyring.backend import KeyringBackend
from pytestqt.qtbot import QtBot

from agent.look.loop import stop_all
from console.access import Access
from console.api.admin import types as wire
from console.gui.connecting import SESSION_IS_OVER, Connecting, Entry
from console.gui.kept import KeptTokens
from console.gui.places import Place
from tests.support.admin_window import program_on
from tests.support.console_thread import ConsoleThread
from tests.support.patience import PATIENCE_S

NO_KEYRING = KeptTokens(lambda: None)


class Attempts:
    """What came of attempts."""

    def __init__(self, folder: Path, kept: KeptTokens = NO_KEYRING) -> None:
        self.connecting = Connecting(folder, kept)
        self.entries: list[Entry] = []
        self.failures: list[str] = []
        self.connecting.came.connect(self.entries.append)
        self.connecting.failed.connect(lambda why, _: self.failures.append(why))


@pytest.fixture
def attempt(qtbot: QtBot) -> Iterator[Callable[..., Attempts]]:
    made: list[Attempts] = []

    def make(*arguments: Any) -> Attempts:
        made.append(Attempts(*arguments))
        return made[-1]

    yield make
    for one in made:
        one.connecting.stop()
    stop_all()


class DictKeyring(KeyringBackend):
    """A keyring in memory, or one that waits for a prompt nobody sees until `prompt` is set."""

    priority = 1

    def __init__(self, prompt: threading.Event | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # the library's own class
        self.entries: dict[str, str] = {}
        self._prompt = prompt

    def get_password(self, service: str, username: str) -> str | None:
        if self._prompt is not None:
            assert self._prompt.wait(PATIENCE_S)
        return self.entries.get(username)

    def set_password(self, service: str, username: str, password: str) -> None:
        self.entries[username] = password

    def delete_password(self, service: str, username: str) -> None:
        del self.entries[username]


@contextlib.contextmanager
def hanging_keyring() -> Iterator[KeptTokens]:
    prompt = threading.Event()
    try:
        yield KeptTokens(lambda: DictKeyring(prompt), deadline_s=0.05)
    finally:
        prompt.set()
        for thread in threading.enumerate():
            if thread.name == "fallow-keyring":
                thread.join(PATIENCE_S)


def key_place(access: Access, *, stay: bool) -> Place:
    return Place(access.url, str(access.authority or ""), sign_in="key", stay=stay)


def test_a_keyring_that_hangs_is_said_and_costs_only_the_comfort(
    console: ConsoleThread, attempt: Callable[..., Attempts], qtbot: QtBot
) -> None:
    access = console.access()
    with hanging_keyring() as kept:
        one = attempt(console.folder, kept)
        one.connecting.again(key_place(access, stay=True))
        qtbot.waitUntil(lambda: bool(one.failures))
        assert one.failures == ["Sign in again: the keyring cannot be used (it did not answer within 0.05 s)."]
        one.connecting.there(key_place(access, stay=True), access.token)
        qtbot.waitUntil(lambda: bool(one.entries))
        assert "did not answer" in one.entries[0].not_kept
        one.connecting.there(key_place(access, stay=False), access.token)
        qtbot.waitUntil(lambda: len(one.entries) == 2)
        assert not one.entries[1].not_kept


def test_a_token_is_kept_for_the_next_time_and_forgotten_when_nobody_wants_to_stay(
    console: ConsoleThread, attempt: Callable[..., Attempts], qtbot: QtBot
) -> None:
    access, keyring = console.access(), DictKeyring()
    one = attempt(console.folder, KeptTokens(lambda: keyring))
    one.connecting.there(key_place(access, stay=True), access.token)
    qtbot.waitUntil(lambda: len(one.entries) == 1)
    assert keyring.entries == {access.url: access.token}
    one.connecting.again(key_place(access, stay=True))
    qtbot.waitUntil(lambda: len(one.entries) == 2)
    one.connecting.there(key_place(access, stay=False), access.token)
    qtbot.waitUntil(lambda: len(one.entries) == 3)
    assert keyring.entries == {}
    one.connecting.again(key_place(access, stay=True))
    qtbot.waitUntil(lambda: bool(one.failures))
    assert one.failures == [SESSION_IS_OVER]
    assert not any(entry.not_kept for entry in one.entries)


def test_an_attempt_that_is_given_up_signs_nobody_in_even_when_its_answer_is_there(
    console: ConsoleThread, attempt: Callable[..., Attempts], qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, there = attempt(console.folder), threading.Event()
    one.connecting.here()
    bridge = one.connecting._bridge
    assert bridge is not None
    post = bridge.post

    def told(function: Callable[..., object], *arguments: object) -> None:
        post(function, *arguments)
        if arguments:  # the answer; that the service was found has none
            there.set()

    monkeypatch.setattr(bridge, "post", told)
    assert there.wait(PATIENCE_S)
    one.connecting.stop()
    other = attempt(console.folder)
    other.connecting.here()
    qtbot.waitUntil(lambda: bool(other.entries))
    assert not one.entries
    assert not one.failures


def test_giving_up_does_not_wait_for_a_name_server_that_is_silent(
    attempt: Callable[..., Attempts], tmp_path: Path, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, given_up = threading.Event(), threading.Event()
    in_time: list[bool] = []

    def silent(*_: Any, **__: Any) -> Any:
        asked.set()
        in_time.append(given_up.wait(2.0))  # whoever joins this thread has it end by that
        raise socket.gaierror(socket.EAI_AGAIN, "nobody answers")

    monkeypatch.setattr(socket, "getaddrinfo", silent)
    one = attempt(tmp_path)
    one.connecting.there(Place("https://console.example", user="olga"), "a password")
    assert asked.wait(PATIENCE_S)
    one.connecting.stop()
    assert not one.connecting.is_busy
    given_up.set()
    stop_all()
    assert in_time == [True]
    assert not one.failures


def test_an_attempt_under_way_is_not_begun_again_because_the_service_is_away(
    console: ConsoleThread, tmp_path: Path, qtbot: QtBot
) -> None:
    with program_on(console.folder, tmp_path) as program:
        begun = program._connecting._bridge
        assert begun is not None
        program._look_for_new_address(Entry(Place(), Access("https://127.0.0.1:9", "old"), wire.Me("", "", ["admin"])))
        assert program._connecting._bridge is begun
        qtbot.waitUntil(lambda: bool(program.window.pages))
