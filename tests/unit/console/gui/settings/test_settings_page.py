"""console.gui.settings: what holds and who set it, changes that reach a real service, and the authority."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytestqt.qtbot import QtBot

from agent.volunteer.policy import BUILT_IN, ROWS
from agent.volunteer.wishes import PlainValue, from_plain, from_text, to_plain
from console.api.admin import types as wire
from console.gui.asking import Question
from console.gui.page import Desk, Page
from console.gui.settings.page import SettingsPage
from console.gui.settings.policy import ROW_TEXTS, PolicyLine, lines_of, tags_of, typed_text, value_text
from tests.support.console_thread import ConsoleThread
from tests.support.shown_fleet import make_agent

PLAIN = {name: to_plain(name, getattr(BUILT_IN, name)) for name in ROWS}


def view_of(**scopes: dict[str, PlainValue]) -> wire.PolicyView:
    made = [wire.PolicyScope("" if tag == "all_" else tag, values, 1, 0.0) for tag, values in scopes.items()]
    return wire.PolicyView(made, [], PLAIN)


def line(view: wire.PolicyView, tag: str, name: str) -> PolicyLine:
    return next(one for one in lines_of(view, tag) if one.name == name)


def test_the_tightest_value_holds_and_whose_it_is_is_said() -> None:
    view = view_of(all_={"idle_start_s": 900.0}, lab={"idle_start_s": 120.0, "metered": True})
    assert line(view, "", "idle_start_s").effective == 900.0
    assert line(view, "lab", "idle_start_s").set_by == "all PCs"
    assert line(view, "lab", "metered").set_by == "tag lab"
    assert line(view, "", "metered").set_by == "built in"
    assert line(view, "other", "metered").for_tag is None


def test_every_row_has_words_that_speak_of_the_owner_and_not_to_one() -> None:
    assert set(ROW_TEXTS) == set(ROWS)
    assert len(set(ROW_TEXTS.values())) == len(ROWS)
    assert not [text for text in ROW_TEXTS.values() if re.search(r"\b(you|yours?|this PC|the menu)\b", text)]
    assert [one.name for one in lines_of(view_of(), "")] == list(ROWS)


def test_what_is_filled_in_can_be_read_back() -> None:
    for name, value in PLAIN.items():
        assert value_text(name, value)
        assert from_text(name, typed_text(name, value)) == from_plain(name, value), name


@given(st.sampled_from([name for name, row in ROWS.items() if row.kind in ("seconds", "percent")]), st.data())
def test_any_number_that_is_filled_in_can_be_read_back(name: str, data: st.DataObject) -> None:
    row = ROWS[name]
    value = float(data.draw(st.integers(int(row.low), int(row.high))))
    assert from_text(name, typed_text(name, value)) == value


def test_tags_of_the_policy_and_of_the_pcs_are_offered() -> None:
    assert tags_of(view_of(all_={}, lab={}), [make_agent(1, tags=["site:oslo"])]) == ["lab", "site:oslo"]


@pytest.fixture
def page(console: ConsoleThread, desk: Desk, shown: Callable[[Page], Page], qtbot: QtBot) -> SettingsPage:
    made = shown(SettingsPage(desk))
    assert isinstance(made, SettingsPage)
    qtbot.waitUntil(lambda: made.policy_tab.states.is_content and made.service_tab.states.is_content)
    return made


def test_a_row_is_changed_for_all_and_for_a_tag_and_taken_back(page: SettingsPage, qtbot: QtBot) -> None:
    tab = page.policy_tab
    said: list[tuple[str, bool]] = []
    page.said.connect(lambda *what: said.append(what))
    tab.table.choose("idle_start_s")
    tab.value.setText("soon")
    tab.set.click()
    assert said[0][1]
    tab.value.setText("20min")
    tab.set.click()
    qtbot.waitUntil(lambda: found(page, "idle_start_s").effective == 1200.0)
    tab.tag.setCurrentText("lab")
    tab.value.setText("30min")
    tab.set.click()
    qtbot.waitUntil(lambda: found(page, "idle_start_s").set_by == "tag lab")
    assert tab.take_back.isEnabled()
    tab.take_back.click()
    qtbot.waitUntil(lambda: found(page, "idle_start_s").set_by == "all PCs")
    assert not tab.take_back.isEnabled()
    assert not said[-1][1]


def found(page: SettingsPage, name: str) -> PolicyLine:
    one = page.policy_tab.model.find(name)
    assert one is not None
    return one


def test_the_service_and_the_authority_are_described_and_a_rotation_is_announced(
    page: SettingsPage, qtbot: QtBot
) -> None:
    tab = page.service_tab
    qtbot.waitUntil(lambda: tab.facts["Version"].text() != "-")
    assert len(tab.facts["Pin of new invites"].text()) == 64
    assert tab.facts["Rotation"].text() == "none is under way"
    tab.rotate.click()
    question = tab.findChild(Question)
    assert question is not None
    question.yes.click()
    qtbot.waitUntil(lambda: not tab.rotate.isEnabled())
    assert "announced" in tab.facts["Rotation"].text()
    assert tab.at_once.isEnabled()


def test_who_is_no_owner_changes_nothing(quiet_desk: Desk) -> None:
    quiet_desk.me = wire.Me("", "vera", ["view"])
    page = SettingsPage(quiet_desk)
    page.policy._take(view_of())
    page.authority._take(wire.AuthorityView("f", "Fleet", "p", "steady", 0.0, ["1"], "file"))
    page.policy_tab.table.choose("metered")
    assert not page.policy_tab.set.isEnabled()
    assert not page.service_tab.rotate.isEnabled()
    page.deleteLater()
