"""console.gui.overview.page: numbers, alerts with their buttons, charts, and what is copied."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from PySide6.QtGui import QGuiApplication
from pytestqt.qtbot import QtBot

from agent.look import palettes
from console.api.admin import types as wire
from console.errors import ServiceUnreachable
from console.gui.overview.page import OverviewPage
from console.gui.page import Desk, Page
from tests.support.shown_fleet import make_fleet, make_pipeline, make_status

Show = Callable[[Page], Page]
MEASURED = wire.ModelPerformance("small", 3, 420.0, 80.0, [0.0] * 179 + [9.5], [None] * 179 + [400.0], [None] * 180)


@pytest.fixture
def page(quiet_desk: Desk, shown: Show, monkeypatch: pytest.MonkeyPatch) -> OverviewPage:
    made = OverviewPage(quiet_desk)
    monkeypatch.setattr(made.performance, "now", lambda: None)
    shown(made)
    return made


def fill(page: OverviewPage) -> None:
    desk = page.desk
    desk.agents._take(make_fleet(16))
    desk.libraries._take([])
    desk.status._take(make_status([make_pipeline("small", state="recovering", message="pc-4 left."), make_pipeline()]))
    page.performance._take(wire.Performances(5.0, [MEASURED]))


def test_the_whole_capacity_is_seen_at_a_glance(page: OverviewPage) -> None:
    assert page.strip.values["PCs connected"].text() == "-"
    fill(page)
    values = {name: value.text() for name, value in page.strip.values.items()}
    assert values["PCs connected"] == "8 / 10"
    assert values["models ready"] == "1 / 2"
    assert values["first token p95"] == "420 ms"
    assert all(value.accessibleName() for value in page.strip.values.values())


def test_out_of_sight_nothing_is_counted_and_in_sight_all_of_it_is(page: OverviewPage) -> None:
    page.hide()
    fill(page)
    assert page.strip.values["PCs connected"].text() == "-"
    page.show()
    assert page.strip.values["PCs connected"].text() == "8 / 10"


def test_health_is_that_of_real_tokens_with_their_age(page: OverviewPage) -> None:
    fill(page)
    assert page.model.index(0, 2).data() == "3 s ago"
    assert page.states.is_content


def test_an_alert_leads_to_where_it_is_settled(page: OverviewPage) -> None:
    fill(page)
    wanted: list[tuple[str, str]] = []
    page.wants.connect(lambda *what: wanted.append(what))
    shown = [line for line in page.alerts.lines if line.isVisibleTo(page)]
    assert "pc-4 left." in shown[0].text.text()
    for line in shown[:2]:
        line.button.click()
    assert wanted == [("devices", "offline"), ("devices", "pending")]


def test_charts_draw_what_was_measured_and_say_it_in_words_in_any_colours(page: OverviewPage) -> None:
    fill(page)
    assert page.charts[0].accessibleName() == "Tokens a second: small 9.5"
    assert page.charts[2].accessibleName() == "Between tokens, p95 (ms): small"
    for scheme in palettes.SCHEMES:
        page.setPalette(palettes.palette(scheme))
        page.charts[0].plot.grab()
    page.performance._take(wire.Performances(5.0, []))
    assert page.charts[0].accessibleName() == "Tokens a second: nothing yet"


def test_what_programs_need_is_copied_and_where_it_works_is_said(page: OverviewPage, qtbot: QtBot) -> None:
    said: list[str] = []
    page.said.connect(lambda text, _: said.append(text))
    fill(page)
    page.copy_url.click()
    assert QGuiApplication.clipboard().text() == "https://127.0.0.1:9/v1"
    page.copy_curl.click()
    assert '"model": "small"' in QGuiApplication.clipboard().text()
    assert all("works on this PC only" in text for text in said)
    page.desk.bridge.access = replace(page.desk.bridge.access, url="https://console.example:8460")
    page.copy_url.click()
    assert said[-1] == "https://console.example:8460/v1 is copied."


def test_what_is_copied_is_never_that_of_a_model_nobody_chose(page: OverviewPage) -> None:
    fill(page)
    names = ["small", "qwen3-4b", "other"]
    page.desk.status._take(make_status([make_pipeline(name) for name in names]))
    page.models.choose(page.model.key_of(page.model.shown[1]))
    for served in (["other", "qwen3-4b", "small"], ["qwen3-4b"], ["fourth", "qwen3-4b"]):
        page.desk.status._take(make_status([make_pipeline(name) for name in served]))
        page.copy_curl.click()
        assert '"model": "qwen3-4b"' in QGuiApplication.clipboard().text()
    page.desk.status._take(make_status([make_pipeline("fourth")]))
    assert not page.copy_curl.isEnabled()
    assert not page.go.isEnabled()


def test_charts_are_drawn_for_new_measurements_only_and_only_in_sight(
    page: OverviewPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(page)
    drawn: list[object] = []
    monkeypatch.setattr(page.charts[0], "show_series", drawn.append)
    page.desk.status._take(make_status())
    page.desk.agents._take(make_fleet(8))
    assert not drawn
    page.performance._take(wire.Performances(5.0, [MEASURED]))
    assert len(drawn) == 1
    page.hide()
    page.performance._take(wire.Performances(5.0, []))
    assert len(drawn) == 1
    page.show()
    assert drawn[1:] == [[]]


def test_without_a_model_and_without_an_answer_it_says_so(page: OverviewPage) -> None:
    assert "Asking the service" in page.states.text.text()
    page.desk.status._fail(ServiceUnreachable("The console does not answer."))
    assert page.states.text.text() == "The console does not answer."
    page.desk.status._take(make_status([]))
    assert "No model is served yet" in page.states.text.text()
    fill(page)
    page.desk.status._fail(ServiceUnreachable("The console does not answer."))
    assert page.states.is_content


def test_the_chat_that_cannot_be_opened_is_told(page: OverviewPage, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    page.said.connect(lambda text, _: said.append(text))
    monkeypatch.setattr("console.gui.handing.open_chat", lambda: False)
    page.chat.click()
    assert "fallow-chat" in said[0]
