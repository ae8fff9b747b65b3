"""console.gui.program: connecting, losing and finding the service, and signing in again."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import psutil
import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QLabel
from pytestqt.qtbot import QtBot

from console import calls
from console.data import ServiceFile, service_file_path
from console.gui.feed import Feed
from console.gui.page import Desk, Page
from console.gui.places import Place, PlaceFile
from console.gui.program import ConsoleProgram
from console.gui.programs import Programs
from console.gui.states import States
from tests.support.admin_window import (
    PASSWORD,
    OwnersPage,
    PlainPage,
    end_session,
    peopled_console,
    program_on,
    session_of,
    sign_in,
)
from tests.support.console_thread import ConsoleThread, console_thread
from tests.support.patience import PATIENCE_S


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleThread]:
    with peopled_console(tmp_path_factory.mktemp("console")) as running:
        yield running


def test_the_service_on_this_pc_is_connected_with_at_once(console: ConsoleThread, tmp_path: Path, qtbot: QtBot) -> None:
    with program_on(console.folder, tmp_path) as program:
        qtbot.waitUntil(lambda: list(program.window.pages) == ["plain", "owners"])
        qtbot.waitUntil(lambda: "version" in program.window.service.text())
        assert "administrator of this PC" in program.window.service.text()
        assert program.dialog is None
        program.window.go("owners", "something")
        page = program.window.current
        assert isinstance(page, OwnersPage)
        assert page.selected == "something"


def test_without_a_service_the_dialog_says_so_and_offers_to_start_one(tmp_path: Path, qtbot: QtBot) -> None:
    with program_on(tmp_path / "nobody", tmp_path) as program:
        qtbot.waitUntil(lambda: program.dialog is not None)
        dialog = program.dialog
        assert dialog is not None
        assert "No console runs on" in dialog.said.text()
        assert dialog.start.isVisible()
        assert "fallow-console serve" in dialog.said.text()


def test_a_service_that_cannot_start_says_why(tmp_path: Path, qtbot: QtBot) -> None:
    folder = tmp_path / "nobody"
    (folder / "console.lock").mkdir(parents=True)  # where the service wants to have a file
    with program_on(folder, tmp_path) as program:
        qtbot.waitUntil(lambda: program.dialog is not None)
        dialog = program.dialog
        assert dialog is not None
        dialog.start.click()
        assert not dialog.connect_button.isEnabled()
        qtbot.waitUntil(dialog.connect_button.isEnabled)
        assert f"The service did not start: The data folder {folder} cannot be used" in dialog.said.text()


STARTED = "import sys; from console.cli import main; main([*sys.argv[1:], '--agents-port', '0', '--api-port', '0'])"


@pytest.mark.slow
def test_a_service_is_started_from_the_window_and_outlives_it(tmp_path: Path, qtbot: QtBot) -> None:
    folder = tmp_path / "new"
    programs = Programs(folder, [sys.executable, "-c", STARTED])
    with program_on(folder, tmp_path, programs=programs) as program:
        qtbot.waitUntil(lambda: program.dialog is not None)
        dialog = program.dialog
        assert dialog is not None
        dialog.start.click()
        qtbot.waitUntil(lambda: "version" in program.window.service.text())
    assert "Agents dial:" in programs.said_file.read_text("utf-8")
    assert " INFO " not in programs.said_file.read_text("utf-8")
    service = psutil.Process(msgspec.json.decode(service_file_path(folder).read_bytes(), type=ServiceFile).process_id)
    assert service.is_running()
    service.terminate()
    service.wait(PATIENCE_S)


def test_somebody_signs_in_with_a_password_and_what_is_typed_wrong_is_said(
    console: ConsoleThread, tmp_path: Path, qtbot: QtBot
) -> None:
    with program_on(tmp_path / "nobody", tmp_path) as program:
        qtbot.waitUntil(lambda: program.dialog is not None)
        dialog = program.dialog
        assert dialog is not None
        access = console.access()
        for name, secret, said in (
            ("", "", "Type name and password"),
            ("olga", "wrong", "do not fit together"),
            ("uma", PASSWORD, "may chat, but not look at the fleet"),
        ):
            sign_in(program, access, name, secret)
            qtbot.waitUntil(lambda said=said: said in dialog.said.text())  # type: ignore[misc]
        sign_in(program, access, "otto", PASSWORD)
        qtbot.waitUntil(lambda: list(program.window.pages) == ["plain"])
        qtbot.waitUntil(lambda: "otto" in program.window.service.text())
        assert program.dialog is None
        place = Place(access.url, str(access.authority or ""), "otto")
        qtbot.waitUntil(lambda: PlaceFile(tmp_path).read() == place)
        assert PASSWORD not in (tmp_path / "place.json").read_text("utf-8")
        program.window.go("owners")
        assert "may not see" in program.window.said.text()


def test_an_api_key_signs_in_and_stays_only_where_there_is_a_keyring(
    console: ConsoleThread, tmp_path: Path, qtbot: QtBot
) -> None:
    with program_on(tmp_path / "nobody", tmp_path) as program:
        qtbot.waitUntil(lambda: program.dialog is not None)
        assert program.dialog is not None
        program.dialog.stay.setChecked(True)
        sign_in(program, console.access(), "", console.access().token, key=True)
        qtbot.waitUntil(lambda: "no keyring" in program.window.said.text())


def test_an_expired_login_asks_again_over_the_kept_window(console: ConsoleThread, tmp_path: Path, qtbot: QtBot) -> None:
    with program_on(tmp_path / "nobody", tmp_path) as program:
        qtbot.waitUntil(lambda: program.dialog is not None)
        sign_in(program, console.access(), "", session_of(console, "olga"), key=True)
        qtbot.waitUntil(lambda: "plain" in program.window.pages)
        page = program.window.current
        token = program.desk.bridge.access.token if program.desk else ""
        end_session(console, token)
        qtbot.waitUntil(lambda: program.dialog is not None)
        assert program.dialog is not None
        assert "What the window shows stays" in program.dialog.said.text()
        assert program.window.current is page
        sign_in(program, console.access(), "", session_of(console, "olga"), key=True)
        qtbot.waitUntil(lambda: program.dialog is None)
        heard: list[object] = []
        assert program.desk is not None
        program.desk.status.came.connect(heard.append)
        qtbot.waitUntil(lambda: bool(heard))
        assert program.window.current is page


class AskingPage(Page):
    """A page that asks often, and has a view of what came."""

    name = "asking"
    heading = "Asking"
    icon = "overview"

    def __init__(self, desk: Desk) -> None:
        self.feed = Feed(desk.bridge, calls.status(), 0.01)
        super().__init__(desk, self.feed)
        self.states = States(QLabel("content"))
        self.states.follow(self.feed)
        self.rows.addWidget(self.states)
        self.refused = 0
        self.feed.came.connect(self.states.show_content)
        self.feed.failed.connect(self._count)

    def _count(self) -> None:
        self.refused += 1


def is_asking(program: ConsoleProgram) -> bool:
    return program.dialog is not None


def test_who_does_not_sign_in_again_is_asked_once_and_keeps_what_is_there(
    console: ConsoleThread, tmp_path: Path, qtbot: QtBot
) -> None:
    with program_on(tmp_path / "nobody", tmp_path, pages=[AskingPage]) as program:
        qtbot.waitUntil(lambda: program.dialog is not None)
        sign_in(program, console.access(), "", session_of(console, "olga"), key=True)
        qtbot.waitUntil(lambda: "asking" in program.window.pages)
        page = program.window.current
        assert isinstance(page, AskingPage)
        qtbot.waitUntil(lambda: page.states.is_content)
        end_session(console, program.desk.bridge.access.token if program.desk else "")
        qtbot.waitUntil(lambda: program.dialog is not None)
        opened = program.dialog
        assert opened is not None
        opened.reject()
        refused = page.refused
        qtbot.waitUntil(lambda: page.refused > refused + 2)
        assert not is_asking(program)
        assert page.states.is_content
        assert program.window.banner.isVisible()
        assert "goes on by itself" not in program.window.banner.text.text()
        program.ask()
        sign_in(program, console.access(), "", session_of(console, "olga"), key=True)
        qtbot.waitUntil(program.window.banner.isHidden)
        end_session(console, program.desk.bridge.access.token if program.desk else "")
        qtbot.waitUntil(lambda: program.dialog is not None and "stays" in program.dialog.said.text())


def test_a_log_out_that_the_service_did_not_hear_is_told(console: ConsoleThread, tmp_path: Path, qtbot: QtBot) -> None:
    with program_on(tmp_path / "nobody", tmp_path) as program:
        qtbot.waitUntil(lambda: program.dialog is not None)
        sign_in(program, console.access(), "", session_of(console, "olga"), key=True)
        qtbot.waitUntil(lambda: "plain" in program.window.pages)
        assert program.desk is not None
        program.desk.bridge.use(replace(program.desk.bridge.access, url="https://127.0.0.1:9"))
        program.log_out()
        qtbot.waitUntil(lambda: not program.window.pages)
        assert "lasts at the service until it ends by itself" in program.window.outside.why.text()


def test_logging_out_shows_nothing_any_more(console: ConsoleThread, tmp_path: Path, qtbot: QtBot) -> None:
    with program_on(tmp_path / "nobody", tmp_path) as program:
        qtbot.waitUntil(lambda: program.dialog is not None)
        sign_in(program, console.access(), "", session_of(console, "olga"), key=True)
        qtbot.waitUntil(lambda: "plain" in program.window.pages)
        program.log_out()
        qtbot.waitUntil(lambda: not program.window.pages)
        assert program.desk is None


def test_a_lost_service_is_told_with_the_age_of_what_is_shown_and_comes_back_by_itself(
    tmp_path: Path, qtbot: QtBot
) -> None:
    folder = tmp_path / "console"
    with contextlib.ExitStack() as last:
        with console_thread(folder):
            program = last.enter_context(program_on(folder, tmp_path))
            qtbot.waitUntil(lambda: "version" in program.window.service.text())
            page = program.window.current
        banner = program.window.banner
        qtbot.waitUntil(banner.isVisible)
        qtbot.waitUntil(lambda: "What you see is" in banner.text.text())
        quiet = page.palette().windowText().color() if page else None
        with console_thread(folder):
            qtbot.waitUntil(banner.isHidden)
            assert program.window.current is page
            assert page is not None
            assert page.palette().windowText().color() != quiet
            program.stop()


def test_keys_reach_every_page_and_the_search(console: ConsoleThread, tmp_path: Path, qtbot: QtBot) -> None:
    with program_on(console.folder, tmp_path) as program:
        window = program.window
        qtbot.waitUntil(lambda: list(window.pages) == ["plain", "owners"])
        window.activateWindow()
        qtbot.waitUntil(window.isActiveWindow)
        QTest.keyClick(window, Qt.Key.Key_2, Qt.KeyboardModifier.ControlModifier)
        assert window.current is window.pages["owners"]
        QTest.keyClick(window, Qt.Key.Key_1, Qt.KeyboardModifier.ControlModifier)
        QTest.keyClick(window, Qt.Key.Key_F, Qt.KeyboardModifier.ControlModifier)
        plain = window.current
        assert isinstance(plain, PlainPage)
        assert plain.found == 1
        assert len({action.shortcut().toString() for action in window.actions()}) == len(window.actions())


def test_a_badge_is_shown_behind_the_name_of_its_page(console: ConsoleThread, tmp_path: Path, qtbot: QtBot) -> None:
    with program_on(console.folder, tmp_path) as program:
        qtbot.waitUntil(lambda: "owners" in program.window.pages)
        program.window.pages["owners"].badge.emit("3")
        assert program.window.list.item(1).text() == "For owners (3)"
        program.window.pages["owners"].badge.emit("")
        assert program.window.list.item(1).text() == "For owners"
