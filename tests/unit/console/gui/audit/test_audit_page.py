"""console.gui.audit: searching, older entries, export and the check of the chain, with a real service."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from console.gui.audit.entries import Sought, detail_text
from console.gui.audit.page import AuditPage
from console.gui.page import Desk, Page
from console.registry.audit import Actor
from console.registry.records import AuditEntry
from console.service import ConsoleService
from tests.support.console_thread import ConsoleThread

PAGE = 40
ENTRY = AuditEntry(7, 0.0, "user:olga", "device.approve", "ab" * 16, "10.0.0.7", {"name": "pc-1", "code": "K7QF"})


@pytest.fixture(scope="module")
def busy(console: ConsoleThread) -> ConsoleThread:
    """A console with a log of more than one page."""

    async def fill(service: ConsoleService) -> None:
        for number in range(PAGE + 20):
            actor = Actor("user:olga" if number % 10 else "user:otto", "10.0.0.7")
            service._registry.audit.append(actor, "device.approve", f"pc-{number}", name=f"pc number {number}")

    console.call(fill)
    return console


@pytest.fixture
def page(
    busy: ConsoleThread, desk: Desk, shown: Callable[[Page], Page], qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> AuditPage:
    monkeypatch.setattr("console.gui.audit.page.PAGE", PAGE)
    made = shown(AuditPage(desk))
    assert isinstance(made, AuditPage)
    qtbot.waitUntil(lambda: made.model.rowCount() == PAGE)
    return made


def test_a_facet_has_to_be_the_whole_field_and_words_are_searched_by_the_service() -> None:
    assert Sought("pc", "user:olga", "", "x").search() == "pc user:olga x"
    assert Sought(actor="user:olga", action="device.approve").fits(ENTRY)
    assert not Sought(actor="olga").fits(ENTRY)
    assert detail_text(ENTRY) == "name: pc-1, code: K7QF"


def test_older_entries_come_behind_when_they_are_wanted(page: AuditPage, qtbot: QtBot) -> None:
    page.older.click()
    qtbot.waitUntil(lambda: page.model.rowCount() > PAGE)
    numbers = [int(page.model.index(row, 0).data()) for row in range(page.model.rowCount())]
    assert numbers == sorted(numbers, reverse=True)
    assert numbers[-1] == 1
    assert not page.older.isEnabled()


def test_the_log_is_searched_by_words_and_by_who_did_it(page: AuditPage, qtbot: QtBot) -> None:
    page.words.setText("pc-5")
    qtbot.waitUntil(lambda: 0 < page.model.rowCount() < 20)
    page.table.selectRow(0)
    assert "10.0.0.7" in page.whole.text()
    assert "Hash" in page.whole.text()
    actor = page.facets["actor"]
    actor.setCurrentIndex(actor.findData("user:otto"))
    actor.activated.emit(actor.currentIndex())
    qtbot.waitUntil(lambda: page.model.rowCount() == 1)
    assert page.model.index(0, 4).data() == "pc-50"
    page.words.setText("nothing of the kind")
    qtbot.waitUntil(lambda: "Nothing like that" in page.states.text.text())
    page.states.button.click()
    qtbot.waitUntil(lambda: page.model.rowCount() == PAGE)


def test_what_fits_is_found_behind_pages_of_which_nothing_fits(
    page: AuditPage, busy: ConsoleThread, qtbot: QtBot
) -> None:
    async def fill(service: ConsoleService) -> None:
        append = service._registry.audit.append
        for number in range(3):
            append(Actor("user:vera", "10.0.0.7"), "device.approve", f"pc-{number}")
        for _ in range(2 * PAGE + 5):
            append(Actor("user:otto", "10.0.0.7"), "user.change", "user:vera")

    busy.call(fill)
    actor = page.facets["actor"]
    actor.addItem("user:vera", "user:vera")
    actor.setCurrentIndex(actor.findData("user:vera"))
    actor.activated.emit(actor.currentIndex())
    for looked_at in (PAGE, 2 * PAGE):
        qtbot.waitUntil(lambda n=looked_at: f"among the newest {n} " in page.states.text.text())  # type: ignore[misc]
        assert page.older.isEnabled()
        page.states.button.click()
    qtbot.waitUntil(lambda: page.model.rowCount() == 3)
    assert page.states.is_content
    assert not page.older.isEnabled()


def test_the_activity_of_one_pc_is_its_own(page: AuditPage, qtbot: QtBot) -> None:
    page.select("pc-17")
    qtbot.waitUntil(lambda: page.model.rowCount() < 20)
    assert "pc-17" in {page.model.index(row, 4).data() for row in range(page.model.rowCount())}


def test_the_whole_log_is_exported_and_its_chain_checked(page: AuditPage, qtbot: QtBot, tmp_path: Path) -> None:
    said: list[tuple[str, bool]] = []
    page.said.connect(lambda *what: said.append(what))
    page.export_to(tmp_path / "audit.jsonl")
    qtbot.waitUntil(lambda: len(said) == 1)
    lines = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text("utf-8").splitlines()]
    assert [line["sequence"] for line in lines] == list(range(1, len(lines) + 1))
    assert f"{len(lines)} entries" in said[0][0]
    page.export_to(tmp_path / "nowhere" / "audit.jsonl")
    qtbot.waitUntil(lambda: len(said) == 2)
    assert "cannot be written" in said[1][0]
    page.verify.click()
    qtbot.waitUntil(lambda: len(said) == 3)
    assert said[2][0].startswith("The chain holds")
    assert list(tmp_path.iterdir()) == [tmp_path / "audit.jsonl"]
