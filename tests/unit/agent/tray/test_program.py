"""agent.tray.program: the program as a whole, with a real control server behind it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QAction
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QCheckBox, QLabel, QMenu, QMessageBox, QPushButton

from agent.control.protocol import (
    ChangeSetting,
    ContributeNow,
    Leave,
    Pause,
    Quit,
    Release,
    Resume,
    SwitchDevice,
)
from agent.control.status import DeviceShown
from agent.look import palettes
from agent.tray.consent import ConsentDialog
from agent.tray.launch import Launch
from agent.tray.pages.now import NowPage
from agent.tray.program import IN_SIGHT_MS, IN_TRAY_MS, TrayProgram
from tests.support.fake_service import (
    NOW_S,
    FakeService,
    fake_service,
    make_busy_status,
    make_held_status,
    make_reason,
    make_row,
    make_status,
)
from tests.support.tray import fields, hear

if TYPE_CHECKING:
    from pytestqt.qtbot import QtBot


COMMANDS: dict[str, tuple[object, ...]] = {
    "pause_15_min": (Pause, "time", 900.0),
    "pause_1_h": (Pause, "time", 3600.0),
    "pause_tomorrow": (Pause, "tomorrow", 0.0),
    "pause_open_end": (Pause, "resumed", 0.0),
    "resume": (Resume,),
    "release": (Release,),
    "contribute": (ContributeNow,),
}


def test_every_command_of_the_menu_reaches_the_service(
    program: TrayProgram, service: FakeService, qtbot: QtBot
) -> None:
    service.say(msgspec.structs.replace(make_busy_status(), pause_until_s=float("inf"), may_contribute_now=True))
    qtbot.waitUntil(program.actions["resume"].isEnabled)
    for name in COMMANDS:
        program.actions[name].trigger()
    qtbot.waitUntil(lambda: len(service.orders) == len(COMMANDS))
    assert [fields(order) for order in service.orders] == list(COMMANDS.values())


def test_a_device_is_switched_from_the_menu_and_the_service_is_believed(
    program: TrayProgram, service: FakeService, qtbot: QtBot
) -> None:
    service.say(make_busy_status())
    qtbot.waitUntil(lambda: bool(program.actions.devices))
    gpu = program.actions.devices["GPU.0"]
    gpu.trigger()
    qtbot.waitUntil(lambda: bool(service.orders))
    assert fields(service.orders[0]) == (SwitchDevice, "GPU.0", False)
    # It has not happened: the next status switches the menu back, and that is no order.
    service.say(msgspec.structs.replace(make_busy_status(), policy_revision=2))
    qtbot.waitUntil(gpu.isChecked)
    assert len(service.orders) == 1
    assert not program.actions.devices["NPU"].isEnabled()
    assert "company" in program.actions.devices["NPU"].toolTip()


def switches(program: TrayProgram, name: str) -> list[QAction | QCheckBox]:
    """A device's switch in the menu and on the page."""
    page = program.open_window("now").pages["now"]
    assert isinstance(page, NowPage)
    return [program.actions.devices[name], page.devices.boxes[name]]


def test_a_refused_switch_goes_back_in_the_menu_and_on_the_page(
    program: TrayProgram, service: FakeService, qtbot: QtBot
) -> None:
    service.refuse(SwitchDevice, "The settings cannot be written; free some disk space.")
    service.say(make_busy_status())
    qtbot.waitUntil(lambda: bool(program.actions.devices))
    for place in (0, 1):
        switch = switches(program, "GPU.0")[place]
        with qtbot.waitSignal(program.commands.said):
            switch.trigger() if isinstance(switch, QAction) else switch.click()
            assert not switch.isChecked()
        assert all(switch.isChecked() for switch in switches(program, "GPU.0"))
    assert len(service.orders) == 2


def test_without_a_service_no_device_can_be_switched_and_it_says_why(
    program: TrayProgram, service: FakeService, qtbot: QtBot
) -> None:
    service.say(make_busy_status())
    qtbot.waitUntil(lambda: bool(program.actions.devices))
    program.open_window("now")
    program.actions.devices["GPU.0"].setChecked(False)  # clicked in the moment the service ends
    service.stop()
    qtbot.waitUntil(lambda: program.status is None)
    for switch in switches(program, "GPU.0"):
        assert (switch.isEnabled(), switch.isChecked()) == (False, True)
        assert switch.toolTip() == "The agent is not running."
    service.start()
    qtbot.waitUntil(lambda: program.status is not None)
    assert all(switch.isEnabled() for switch in switches(program, "GPU.0"))
    assert not any(switch.isEnabled() for switch in switches(program, "NPU"))


def test_devices_that_change_change_the_menu(program: TrayProgram, service: FakeService, qtbot: QtBot) -> None:
    service.say(make_status(devices=[DeviceShown("CPU", "A processor", 1, on=True)]))
    qtbot.waitUntil(lambda: list(program.actions.devices) == ["CPU"])
    assert program.icon.menu.findChild(QMenu, "menu_devices") is not None


def test_what_cannot_be_done_now_says_why(program: TrayProgram, service: FakeService, qtbot: QtBot) -> None:
    service.say(make_status(may_quit=False))
    quit_ = program.actions["quit"]
    qtbot.waitUntil(lambda: not quit_.isEnabled())
    assert quit_.text().endswith("your company keeps it running")
    assert program.actions["chat"].toolTip() == "No chat is installed on this PC."
    assert program.actions["resume"].toolTip() == "You have not paused."


def test_without_a_service_it_says_so_and_can_start_it(
    make_program: Callable[..., TrayProgram], folder: Path, qtbot: QtBot
) -> None:
    started: list[bool] = []

    class Recording(Launch):
        def service(self) -> bool:
            started.append(True)
            return True

    program = make_program(launch=Recording(folder))
    window = program.open_window()
    assert "not running" in program.icon.headline.text()
    assert not program.actions["pause_1_h"].isEnabled()
    program.actions["start"].trigger()
    assert started == [True]
    assert window.said.text() == "The agent is starting."
    with fake_service(folder):
        qtbot.waitUntil(lambda: program.status is not None)
        assert not program.actions["start"].isVisible()
        qtbot.waitUntil(lambda: not window.said.isVisible())


class Ending(Launch):
    """A service that gives up, or just never answers."""

    why = ""

    def service(self) -> bool:
        return True

    def why_ended(self) -> str:
        return self.why


def test_a_service_that_gives_up_at_once_says_why(
    make_program: Callable[..., TrayProgram], folder: Path, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch, notified = Ending(folder), list[str]()
    program = make_program(launch=launch)
    monkeypatch.setattr(program.icon, "notify", lambda title, text, *, warning: notified.append(text))
    launch.why = "The settings are not valid; correct agent.toml."
    program.actions["start"].trigger()
    qtbot.waitUntil(lambda: notified == [launch.why])
    assert launch.why in program.icon.icon.toolTip()
    window = program.open_window()
    program.actions["start"].trigger()
    qtbot.waitUntil(lambda: window.said.text() == "The agent ended again at once; the page Now says why.")


def test_a_service_that_never_answers_is_not_said_to_be_starting_for_ever(
    make_program: Callable[..., TrayProgram], folder: Path, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.tray.program.START_LOOKS", 1)
    program = make_program(launch=Ending(folder))
    window = program.open_window()
    program.actions["start"].trigger()
    qtbot.waitUntil(lambda: window.said.text().startswith("The agent does not answer yet"))


def test_a_service_that_restarts_is_followed(program: TrayProgram, service: FakeService, qtbot: QtBot) -> None:
    service.stop()
    qtbot.waitUntil(lambda: program.status is None)
    assert program.actions["start"].isVisible()
    service.start()
    qtbot.waitUntil(lambda: program.status is not None)


def test_what_was_said_does_not_outlive_its_time_or_the_agent(
    program: TrayProgram, service: FakeService, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.tray.window.SAID_MS", 1)
    window = program.open_window()
    window.say("Changed.", failed=False)
    assert window.said.isVisible()
    qtbot.waitUntil(lambda: not window.said.isVisible())
    window.say("Changed.", failed=False)
    window.say("The settings cannot be written; free some disk space.", failed=True)
    qtbot.wait(50)
    assert window.said.isVisible()
    service.stop()
    qtbot.waitUntil(lambda: program.status is None)
    assert not window.said.isVisible()


def test_a_refusal_is_shown_in_the_window(program: TrayProgram, service: FakeService, qtbot: QtBot) -> None:
    service.refuse(Pause, "The settings cannot be written; free some disk space.")
    window = program.open_window()
    program.actions["pause_1_h"].trigger()
    qtbot.waitUntil(window.said.isVisible)
    assert window.said.text() == "The settings cannot be written; free some disk space."


def test_time_only_ticks_while_something_counts_down(program: TrayProgram, service: FakeService, qtbot: QtBot) -> None:
    assert not program._ticking.isActive()
    service.say(make_held_status())
    qtbot.waitUntil(program._ticking.isActive)
    assert program._ticking.interval() == IN_TRAY_MS
    program.open_window()
    assert program._ticking.interval() == IN_SIGHT_MS
    service.say(make_busy_status())
    qtbot.waitUntil(lambda: not program._ticking.isActive())


@pytest.mark.parametrize("agreed", [True, False])
def test_the_first_run_asks_and_the_service_keeps_the_answer(
    program: TrayProgram, service: FakeService, qtbot: QtBot, agreed: bool
) -> None:
    service.say(make_status(policy=[make_row("enabled", "switch", True)]))
    qtbot.waitUntil(lambda: "consent" in program._dialogs)
    dialog = program._dialogs["consent"]
    assert isinstance(dialog, ConsentDialog)
    QTest.mouseClick(dialog.yes if agreed else dialog.no, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: bool(service.orders))
    assert fields(service.orders[0]) == (ChangeSetting, "enabled", agreed)


UNASKED = make_status(policy=[make_row("enabled", "switch", True)])
PAUSED = msgspec.structs.replace(UNASKED, pause_until_s=NOW_S + 3600)


def later(dialog: ConsentDialog) -> None:
    (button,) = [button for button in dialog.findChildren(QPushButton) if button.text() == "Ask me later"]
    button.click()


def escape(dialog: ConsentDialog) -> None:
    QTest.keyClick(dialog, Qt.Key.Key_Escape)


@pytest.mark.parametrize("put_off", [later, escape, ConsentDialog.close], ids=["later", "escape", "closed"])
def test_who_puts_the_question_off_has_paused_until_tomorrow_and_is_asked_again(
    program: TrayProgram, service: FakeService, qtbot: QtBot, put_off: Callable[[ConsentDialog], object]
) -> None:
    hear(program, service, qtbot, UNASKED)
    dialog = program._dialogs["consent"]
    assert isinstance(dialog, ConsentDialog)
    assert any("pauses until tomorrow" in label.text() for label in dialog.findChildren(QLabel))
    put_off(dialog)
    qtbot.waitUntil(lambda: bool(service.orders))
    assert [fields(order) for order in service.orders] == [(Pause, "tomorrow", 0.0)]
    for status in (msgspec.structs.replace(UNASKED, policy_revision=2), PAUSED):
        hear(program, service, qtbot, status)
        assert program._dialogs == {}
    hear(program, service, qtbot, UNASKED)  # the pause has ended
    assert list(program._dialogs) == ["consent"]
    assert len(service.orders) == 1


def test_a_pause_is_not_shortened_by_putting_the_question_off(
    program: TrayProgram, service: FakeService, qtbot: QtBot
) -> None:
    hear(program, service, qtbot, UNASKED)
    hear(program, service, qtbot, PAUSED)
    hear(program, service, qtbot, UNASKED)
    hear(program, service, qtbot, PAUSED)
    program._dialogs["consent"].reject()
    assert program._dialogs == {}
    program.actions["resume"].trigger()
    qtbot.waitUntil(lambda: bool(service.orders))
    assert [fields(order) for order in service.orders] == [(Resume,)]


def test_a_question_that_ends_with_the_tray_pauses_nothing(
    program: TrayProgram, service: FakeService, qtbot: QtBot
) -> None:
    hear(program, service, qtbot, UNASKED)
    asked: list[bool] = []
    program.commands.pause_until_tomorrow = lambda: asked.append(True)  # type: ignore[method-assign]  # to see it
    program.stop()
    assert program._dialogs == {}
    assert asked == []


def test_quitting_asks_first_and_then_ends_the_service(
    program: TrayProgram, service: FakeService, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[bool] = []
    monkeypatch.setattr(QApplication, "quit", lambda: ended.append(True))
    program.actions["quit"].trigger()
    box = program._dialogs["quit"]
    assert isinstance(box, QMessageBox)
    (end,) = [button for button in box.buttons() if button.text() == "Quit the agent"]
    end.click()
    qtbot.waitUntil(lambda: ended == [True])
    assert [fields(order) for order in service.orders] == [(Quit, "")]


def test_a_quit_that_is_refused_ends_nothing(
    program: TrayProgram, service: FakeService, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[bool] = []
    monkeypatch.setattr(QApplication, "quit", lambda: ended.append(True))
    service.refuse(Quit, "Your company keeps the agent running.")
    window = program.open_window()
    program.commands.quit_service(QApplication.quit)
    qtbot.waitUntil(window.said.isVisible)
    assert "keeps the agent running" in window.said.text()
    assert ended == []


def test_leaving_the_fleet_asks_first(program: TrayProgram, service: FakeService, qtbot: QtBot) -> None:
    page = program.open_window("membership").pages["membership"]
    for answer in ("Cancel", "Leave"):
        page.leave.click()  # type: ignore[attr-defined]  # the page's own button
        box = page.findChildren(QMessageBox)[-1]
        (button,) = [button for button in box.buttons() if button.text() == answer]
        assert service.orders == []
        button.click()
        qtbot.waitUntil(lambda: not page.findChildren(QMessageBox))
    qtbot.waitUntil(lambda: [fields(order) for order in service.orders] == [(Leave,)])


def test_a_second_start_brings_the_window_up(program: TrayProgram) -> None:
    for wish, page in (("show", "now"), ("code", "membership"), ("help", "help")):
        program.do(wish)
        assert program.window is not None
        assert program.window.isVisible()
        assert program.window._page().name == page
        program.window.close()
        assert not program.window.isVisible()


def test_a_desktop_that_turns_dark_turns_the_open_window_dark(
    program: TrayProgram, qapp: QApplication, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    window = program.open_window()
    palettes.choose(qapp, "system")

    def ground() -> str:
        return str(window.grab().toImage().pixelColor(2, 2).name())

    assert ground() == palettes.COLOURS["light"].window
    try:
        monkeypatch.setattr(palettes, "system_scheme", lambda _: "dark")
        qapp.styleHints().colorSchemeChanged.emit(Qt.ColorScheme.Dark)
        qtbot.waitUntil(lambda: ground() == palettes.COLOURS["dark"].window)
    finally:
        palettes.apply(qapp, "light")


def is_open(program: TrayProgram) -> bool:
    return program.window is not None and program.window.isVisible()


def test_without_a_tray_the_window_opens_by_itself_the_first_time_only(
    program: TrayProgram, service: FakeService, qtbot: QtBot
) -> None:
    hear(program, service, qtbot, make_status(reasons=[make_reason("fullscreen")]))
    program.icon.without_tray.emit()
    assert not is_open(program)
    hear(program, service, qtbot, make_status())
    program.icon.without_tray.emit()
    assert is_open(program)
    program.open_window().close()
    program.icon.without_tray.emit()
    assert not is_open(program)


@pytest.mark.parametrize("code", ["fullscreen", "presentation"])
def test_the_first_run_does_not_ask_over_what_has_the_screen(
    program: TrayProgram, service: FakeService, qtbot: QtBot, code: str
) -> None:
    hear(program, service, qtbot, msgspec.structs.replace(UNASKED, reasons=[make_reason(code)]))
    assert program._dialogs == {}
    hear(program, service, qtbot, UNASKED)
    assert list(program._dialogs) == ["consent"]
