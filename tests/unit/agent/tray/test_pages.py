"""agent.tray.pages: what each page shows, and that keyboards and screen readers reach all of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
from PySide6.QtCore import QObject, QProcess, Qt
from PySide6.QtGui import QAccessible, QFont
from PySide6.QtTest import QTest
from PySide6.QtWidgets import (
    QAbstractButton,
    QAbstractItemView,
    QAbstractSpinBox,
    QApplication,
    QComboBox,
    QLabel,
    QLineEdit,
    QPlainTextEdit,
    QProgressBar,
    QWidget,
)

from agent.control.protocol import ChangeSetting, QueryHistory, RunDoctor
from agent.control.status import PolicyValue
from agent.tray.consent import ConsentDialog
from agent.tray.launch import Launch
from agent.tray.pages.chart import Chart
from agent.tray.pages.doctor import DoctorPage
from agent.tray.pages.editors import DurationBox, editor_for
from agent.tray.pages.history import HistoryPage
from agent.tray.pages.now import NowPage
from agent.tray.pages.settings import SettingsPage
from agent.tray.program import TrayProgram
from agent.tray.texts import LANGUAGES, Texts
from agent.tray.window import Window
from tests.support.fake_service import (
    FakeService,
    make_busy_status,
    make_held_status,
    make_policy,
    make_reason,
    make_row,
    make_status,
)

if TYPE_CHECKING:
    from pytestqt.qtbot import QtBot

CONTROLS = (
    QAbstractButton, QAbstractItemView, QAbstractSpinBox, QComboBox, QLineEdit, QPlainTextEdit, QProgressBar, Chart,
)  # fmt: skip
PAGES = ("now", "history", "settings", "company", "membership", "doctor", "help")


@pytest.fixture
def window(program: TrayProgram, service: FakeService, qtbot: QtBot) -> Window:
    """The window of a busy PC."""
    service.say(make_busy_status())
    qtbot.waitUntil(lambda: program.status is not None and program.status.phase == "serving")
    return program.open_window()


def texts_of(widget: QWidget) -> str:
    return "\n".join(found.text() for found in widget.findChildren(QLabel) if found.isVisible())


def controls_of(widget: QWidget) -> list[QWidget]:
    """What a person can use: not the parts a control is made of."""
    found = [child for child in widget.findChildren(QWidget) if isinstance(child, CONTROLS) and child.isVisible()]
    return [child for child in found if not _is_part(child)]


def _is_part(child: QWidget) -> bool:
    parent = child.parentWidget()
    while parent is not None:
        if isinstance(parent, QAbstractSpinBox | QComboBox | QAbstractItemView):
            return True
        parent = parent.parentWidget()
    return False


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_control_has_a_name_for_screen_readers(
    make_program: Callable[..., TrayProgram], service: FakeService, qtbot: QtBot, language: str
) -> None:
    service.say(make_busy_status())
    program = make_program(language)
    qtbot.waitUntil(lambda: program.status is not None and bool(program.status.policy))
    assert program.status is not None
    window = program.open_window()
    dialogs = [program.enrol(), ConsentDialog(program.status, program._texts, window)]
    dialogs[1].show()
    counted = 0
    for page in PAGES:
        window.go(page)
        for control in [window.list, *controls_of(window.pages[page]), *(c for d in dialogs for c in controls_of(d))]:
            interface = QAccessible.queryAccessibleInterface(control)
            assert interface is not None
            assert interface.text(QAccessible.Text.Name).strip(), (page, control.objectName(), type(control))
            counted += 1
    dialogs[1].close()
    assert counted > 60


def test_tab_reaches_every_control(window: Window) -> None:
    for page in PAGES:
        window.go(page)
        assert unreachable(window, page) == [], page


def unreachable(window: Window, page: str) -> list[str]:
    """Name the controls of the page in sight that Tab does not come to."""
    wanted = {control for control in controls_of(window.pages[page]) if control.isEnabled()}
    wanted -= {control for control in wanted if isinstance(control, QProgressBar)}
    reached: set[QWidget] = set()
    at = window.list.nextInFocusChain()
    while at is not None and at is not window.list:
        if at.focusPolicy() & Qt.FocusPolicy.TabFocus and at.isVisible() and at.isEnabled():
            reached.add(at)
        at = at.nextInFocusChain()
    proxies = {widget.focusProxy() for widget in reached} | reached
    return [f"{type(control).__name__} {control.objectName()}" for control in wanted - proxies]


def test_a_page_is_one_shortcut_away(window: Window) -> None:
    for number in range(len(PAGES), 0, -1):
        QTest.keyClick(window, Qt.Key(Qt.Key.Key_0 + number), Qt.KeyboardModifier.ControlModifier)
        assert window.list.currentRow() == number - 1


def test_escape_closes_the_window(window: Window, qtbot: QtBot) -> None:
    QTest.keyClick(window, Qt.Key.Key_Escape)
    qtbot.waitUntil(lambda: not window.isVisible())


@pytest.mark.parametrize("language", LANGUAGES)
def test_twice_the_letters_still_fit_a_small_screen(
    make_program: Callable[..., TrayProgram], service: FakeService, qtbot: QtBot, qapp: QApplication, language: str
) -> None:
    service.say(make_busy_status())
    before = qapp.font()
    large = QFont(before)
    large.setPointSizeF(before.pointSizeF() * 2)
    qapp.setFont(large)
    try:
        program = make_program(language)
        qtbot.waitUntil(lambda: program.status is not None and bool(program.status.policy))
        window = program.open_window()
        for page in PAGES:
            window.go(page)
            # 1366x768, the smallest screen in offices.
            assert window.minimumSizeHint().width() <= 1366, page
            assert window.minimumSizeHint().height() <= 768, page
    finally:
        qapp.setFont(before)


def test_the_first_page_lists_every_reason(window: Window, service: FakeService, qtbot: QtBot) -> None:
    service.say(make_held_status())
    page = window.pages["now"]
    assert isinstance(page, NowPage)
    qtbot.waitUntil(lambda: page.picture.name == "waiting")
    assert page.reasons.text().count("•") == 3
    assert page.picture.accessibleName() == "Waiting"
    assert "given back in" in page.detail.text()


def test_the_first_page_shows_what_is_loaded_and_what_was_given(window: Window) -> None:
    said = texts_of(window.pages["now"])
    assert "Layers 0 to 13 on CPU, engine paged" in said
    assert "Today: 3.3 h, 41,230 tokens, about 96 Wh" in said
    assert "In all: 512.5 h, 6,120,400 tokens, about 15.3 kWh" in said
    bars = [bar for bar in window.pages["now"].findChildren(QProgressBar) if bar.isVisible()]
    assert [bar.value() for bar in bars] == [40]


def test_a_name_of_a_device_is_never_markup(window: Window, service: FakeService, qtbot: QtBot) -> None:
    service.say(make_status(fleet_name="<b>bold</b><img src='http://x/'>"))
    window.go("membership")
    fact = window.pages["membership"].findChild(QLabel, "fact_fleet")
    assert isinstance(fact, QLabel)
    qtbot.waitUntil(lambda: "<b>" in fact.text())
    assert fact.textFormat() == Qt.TextFormat.PlainText


@pytest.mark.parametrize(
    ("code", "said"), [("suspended_by_admin", "suspended"), ("revoked", "a new invite"), ("link_down", "is a member")]
)
def test_a_pc_that_is_kept_out_is_not_called_a_member(
    window: Window, service: FakeService, qtbot: QtBot, code: str, said: str
) -> None:
    service.say(make_status(fleet_name=code, reasons=[make_reason(code)]))
    window.go("membership")
    fact, shown = (window.pages["membership"].findChild(QLabel, name) for name in ("fact_fleet", "code_said"))
    assert isinstance(fact, QLabel)
    assert isinstance(shown, QLabel)
    qtbot.waitUntil(lambda: fact.text() == code)
    assert said in shown.text()


@pytest.fixture
def settings(window: Window) -> SettingsPage:
    window.go("settings")
    page = window.pages["settings"]
    assert isinstance(page, SettingsPage)
    return page


def origin(page: SettingsPage, field: str) -> str:
    return page.editors[field]._origin.text()


def test_a_setting_says_what_holds_who_set_it_and_what_the_others_asked(settings: SettingsPage) -> None:
    assert origin(settings, "heat_limit_celsius") == "In force: 90 °C, set by Fallow itself."
    assert origin(settings, "idle_start_s") == "In force: 10 min, set by you. The company asked for 5 min."
    assert origin(settings, "memory_max_percent") == "In force: 50 %, set by the company. Your wish: 80 %."
    assert origin(settings, "fullscreen") == "In force: no, set by the company. You cannot change this."
    assert not settings.editors["fullscreen"].editor.isEnabled()


EDITS: list[tuple[str, Callable[[QWidget], None], PolicyValue]] = [
    ("enabled", lambda inner: inner.click(), False),  # type: ignore[attr-defined]  # a check box
    ("schedule", lambda inner: type_in(inner, "never"), "never"),
    ("idle_start_s", lambda inner: type_in(inner, "1 h 30 min"), 5400.0),
    ("memory_max_percent", lambda inner: type_in(inner, "25"), 25.0),
    ("memory_floor_bytes", lambda inner: type_in(inner, "6"), 6 * 2**30),
    ("exclusive_programs", lambda inner: type_in(inner, " krita,, obs "), ["krita", "obs"]),
    ("telemetry", lambda inner: QTest.keyClick(inner, Qt.Key.Key_Up), "none"),
]


def type_in(inner: QWidget, text: str) -> None:
    inner.setFocus()
    inner.selectAll()  # type: ignore[attr-defined]  # line edits and spin boxes have it
    QTest.keyClicks(inner, text)
    QTest.keyClick(inner, Qt.Key.Key_Return)


def test_edited_settings_are_wishes_to_the_service(settings: SettingsPage, service: FakeService, qtbot: QtBot) -> None:
    for field, edit, _ in EDITS:
        edit(settings.editors[field].editor.inner)
    qtbot.waitUntil(lambda: len(service.orders) == len(EDITS))
    wishes = [(order.field, order.value) for order in service.orders if isinstance(order, ChangeSetting)]
    assert wishes == [(field, value) for field, _, value in EDITS]


def test_a_wish_is_taken_back(settings: SettingsPage, service: FakeService, qtbot: QtBot) -> None:
    assert not settings.editors["heat_limit_celsius"].reset.isVisible()
    settings.editors["idle_start_s"].reset.click()
    qtbot.waitUntil(lambda: bool(service.orders))
    assert [(order.field, order.value) for order in service.orders if isinstance(order, ChangeSetting)] == [
        ("idle_start_s", None)
    ]


def test_a_refused_wish_says_why_and_goes_back(settings: SettingsPage, service: FakeService, qtbot: QtBot) -> None:
    service.refuse(ChangeSetting, "'Moonday' is no weekday; write Mon, Tue.")
    row = settings.editors["schedule"]
    type_in(row.editor.inner, "Moonday 1:00-2:00")
    row.editor.inner.clearFocus()
    qtbot.waitUntil(row._trouble.isVisible)
    assert "Moonday" in row._trouble.text()
    assert row.editor.inner.text() == "Mon-Fri 18:00-07:00"  # type: ignore[attr-defined]  # a line edit


def test_news_do_not_overwrite_what_is_being_typed(settings: SettingsPage, service: FakeService, qtbot: QtBot) -> None:
    line = settings.editors["schedule"].editor.inner
    assert isinstance(line, QLineEdit)
    settings.window().activateWindow()
    line.setFocus()
    qtbot.waitUntil(line.hasFocus)
    line.setText("Mon-Fri 2")
    policy = make_policy()
    policy[1] = make_row("schedule", "schedule", "never", set_by="admin")
    service.say(msgspec.structs.replace(make_busy_status(), policy=policy))
    qtbot.waitUntil(lambda: "never" in origin(settings, "schedule"))
    assert line.text() == "Mon-Fri 2"


def test_a_row_nobody_has_translated_is_shown_at_the_end(settings: SettingsPage) -> None:
    assert settings.editors["telemetry"].name == "telemetry"


def test_no_limit_is_said_in_words_and_can_be_made_one(qapp: QApplication, texts: Texts) -> None:
    row = make_row("memory_max_bytes", "bytes", 2**48, minimum=0.0, maximum=float(2**48))
    editor = editor_for(row, texts)
    wishes: list[PolicyValue] = []
    editor.edited.connect(wishes.append)
    box = editor.inner
    assert isinstance(box, QAbstractSpinBox)
    editor.show_value(2**48)
    assert box.text() == "no limit"
    QTest.keyClick(box, Qt.Key.Key_Return)
    type_in(box, "8")
    assert wishes == [8 * 2**30]
    editor.show_value(8 * 2**30)
    assert box.text() == "8.0 GiB"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("5 min", 300), ("90", 90), ("1 h", 3600), ("1h30min", 5400), ("2 min 5 s", 125), ("nonsense", 60)],
)
def test_durations_are_typed_as_people_say_them(qapp: QApplication, text: str, seconds: int) -> None:
    box = DurationBox()
    box.setRange(0, 86_400)
    box.setValue(60)
    assert box.valueFromText(text) == seconds
    assert box.valueFromText(box.textFromValue(seconds)) == seconds


def test_the_history_is_asked_for_when_it_comes_into_sight(window: Window, service: FakeService, qtbot: QtBot) -> None:
    assert service.orders == []
    window.go("history")
    page = window.pages["history"]
    assert isinstance(page, HistoryPage)
    qtbot.waitUntil(lambda: page.table.rowCount() > 0)
    assert page.sum.text().startswith("Together: ")
    page.period.setCurrentIndex(0)
    qtbot.waitUntil(lambda: len(service.orders) == 2)
    assert [order.by for order in service.orders if isinstance(order, QueryHistory)] == ["day", "hour"]


def test_the_chart_speaks_to_those_who_do_not_see_it(window: Window, qtbot: QtBot) -> None:
    window.go("history")
    page = window.pages["history"]
    assert isinstance(page, HistoryPage)
    qtbot.waitUntil(lambda: page.table.rowCount() > 0)
    page.chart.setFocus(Qt.FocusReason.TabFocusReason)
    page.chart.choose(13)
    QTest.keyClick(page.chart, Qt.Key.Key_Left)
    assert page.chart.place == 12
    assert "tokens" in page.chart.accessibleDescription()
    QTest.keyClick(page.chart, Qt.Key.Key_Home)
    QTest.keyClick(page.chart, Qt.Key.Key_Left)
    assert page.chart.place == 0
    QTest.keyClick(page.chart, Qt.Key.Key_End)
    assert page.chart.place == 13


def test_the_company_page_shows_exactly_what_was_sent(window: Window) -> None:
    window.go("company")
    table = window.pages["company"].table  # type: ignore[attr-defined]  # the page's own
    shown = {table.item(row, 0).text(): table.item(row, 1).text() for row in range(table.rowCount())}
    assert shown == {
        "State": "available", "Reasons": "none", "Free memory": "9.0 GiB", "Measured speed": "none",
        "Usual rest": "none",
        "Name": "desk-17", "System": "Linux 6.1", "Processor cores": "12", "Memory it may use": "12.0 GiB",
        "Devices": "CPU: 12th Gen Core i5-1240P, 12.0 GiB, paged, stateful; "
                   "GPU.0: Iris Xe Graphics (iGPU), 7.0 GiB, stateful, driver 32.0.101",
        "Version": "0.1.0", "OpenVINO": "2026.4.1", "Protocol": "2, with policies", "Company's settings": "3",
        "Its key is kept in": "keyring", "Mark against copies": "none", "Model files (checksums)": "3",
        "Other PCs reach it at": "192.0.2.17:8470", "Updates": "stable", "Lines of the log of its work": "none",
    }  # fmt: skip


def doctor_of(window: Window) -> DoctorPage:
    window.go("doctor")
    page = window.pages["doctor"]
    assert isinstance(page, DoctorPage)
    return page


def cells(table: QAbstractItemView) -> list[list[str]]:
    model = table.model()
    return [
        [str(model.index(row, column).data()) for column in range(model.columnCount())]
        for row in range(model.rowCount())
    ]


def test_the_doctor_puts_problems_first_and_says_what_to_do(window: Window, service: FakeService, qtbot: QtBot) -> None:
    page = doctor_of(window)
    page.examine.click()
    qtbot.waitUntil(lambda: page.findings.rowCount() == 3)
    assert page.result.text() == "One problem was found."
    assert cells(page.findings)[0][:2] == ["✗ problem", "Way to the console"]
    assert "→ Check the network cable" in cells(page.findings)[0][2]
    assert page.examine.isEnabled()


def test_the_probes_are_shown_with_what_they_do_not_know(window: Window, qtbot: QtBot) -> None:
    page = doctor_of(window)
    qtbot.waitUntil(lambda: page.probes.rowCount() == 4)
    assert cells(page.probes)[0] == ["Time since the last input", "4 s", "mutter", "1 s ago"]
    assert cells(page.probes)[3][1] == "unknown"
    assert page._asking.isActive()
    window.go("help")
    assert not page._asking.isActive()


def test_the_doctor_works_without_a_service(
    make_program: Callable[..., TrayProgram], folder: object, qtbot: QtBot
) -> None:
    import sys

    found = '{"findings": [{"check": "disk", "verdict": "ok", "said": "fine"}]}'
    launch = Launch(folder, [sys.executable, "-c", f"print({found!r})"])  # type: ignore[arg-type]  # the fixture's path
    page = doctor_of(make_program(launch=launch).open_window())
    page.examine.click()
    assert not page.examine.isEnabled()
    qtbot.waitUntil(page.examine.isEnabled)
    assert page.result.text() == "All is well."


def test_a_doctor_that_cannot_run_says_so(
    make_program: Callable[..., TrayProgram], folder: object, qtbot: QtBot
) -> None:
    launch = Launch(folder, ["/nowhere/fallow-agent"])  # type: ignore[arg-type]  # the fixture's path
    page = doctor_of(make_program(launch=launch).open_window())
    page.examine.click()
    qtbot.waitUntil(page.examine.isEnabled)
    assert "could not be run" in page.result.text()


@pytest.mark.parametrize("said", [True, False])
def test_a_doctor_whose_failure_is_known_within_its_start_can_be_asked_again(
    make_program: Callable[..., TrayProgram], folder: Path, said: bool
) -> None:
    """As on Windows, where nothing comes after `start` has returned."""

    class Failing(QProcess):
        def start(self, *_: object) -> None:
            if said:
                self.errorOccurred.emit(QProcess.ProcessError.FailedToStart)

    class Doctorless(Launch):
        def doctor(self, parent: QObject) -> QProcess:
            return Failing(parent)

    page = doctor_of(make_program(launch=Doctorless(folder)).open_window())
    for _ in range(2):
        page.examine.click()
        assert page.examine.isEnabled()
        assert not page.busy.isVisible()
        assert "could not be run" in page.result.text()
        page.result.setText("")


def test_an_examination_is_asked_for_once_at_a_time(window: Window, service: FakeService, qtbot: QtBot) -> None:
    page = doctor_of(window)
    page._examine()
    page._examine()
    qtbot.waitUntil(lambda: page.findings.rowCount() == 3)
    assert sum(isinstance(order, RunDoctor) for order in service.orders) == 1
