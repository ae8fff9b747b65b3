"""console.gui.answers: which answers were slow, and where the time of one went."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from pytestqt.qtbot import QtBot

from console.api.admin import types as wire
from console.errors import ServiceUnreachable
from console.gui.answers.page import AnswersPage
from console.gui.answers.texts import bars, end_text, largest_text, stage_rows, summary_text
from console.gui.page import Desk, Page
from console.pipeline.parts import WORDS, StageTime, TimeParts
from tests.support.pictured_fleet import answer_times

Show = Callable[[Page], Page]
SLOW, LOST, WAITED = answer_times()


@pytest.fixture
def page(quiet_desk: Desk, shown: Show, monkeypatch: pytest.MonkeyPatch) -> AnswersPage:
    made = AnswersPage(quiet_desk)
    for feed in made.by_order.values():
        monkeypatch.setattr(feed, "now", lambda: None)
    shown(made)
    return made


def rows(page: AnswersPage) -> list[str]:
    return [page.model.index(row, 5).data() for row in range(page.model.rowCount())]


def choose(page: AnswersPage, answer: wire.AnswerTime) -> None:
    page.table.choose(page.model.key_of(answer))


def test_the_slowest_come_first_and_the_first_is_explained(page: AnswersPage) -> None:
    assert not page.bars.isVisible()
    page.feed._take(answer_times())
    assert [page.model.index(row, 2).data() for row in range(3)] == ["40.7 s", "31.9 s", "9.8 s"]
    assert page.why.text() == SLOW.slowest
    assert "Inference 28.4 s, 70%" in page.bars.accessibleName()
    table = page.stages
    assert [[table.item(row, column).text() for column in range(4)] for row in range(2)] == [  # type: ignore[union-attr]
        ["desk-03", "9.2 s", "390 ms", "2.3 s"],
        ["desk-07", "19.1 s", "440 ms", "3.5 s"],
    ]
    assert "31 of 44 tokens guessed ahead were right." in page.more.text()


def test_another_answer_is_explained_when_it_is_chosen(page: AnswersPage) -> None:
    page.feed._take(answer_times())
    choose(page, LOST)
    assert page.why.text() == LOST.slowest
    assert not page.stages.isVisible(), "no step after its prompt came back"
    page.feed._take(answer_times())
    assert page.why.text() == LOST.slowest, "what was chosen stays"


def test_the_newest_are_asked_for_only_when_somebody_wants_them(page: AnswersPage) -> None:
    page.feed._take(answer_times())
    page.order.setCurrentIndex(1)
    page.order.activated.emit(1)
    assert page.feeds == (page.by_order["newest"],)
    assert page.by_order["slowest"]._watchers == 0
    page.feed._take([SLOW])
    assert rows(page) == ["complete"]
    page.hide()
    assert page.by_order["newest"]._watchers == 0


def test_answers_are_found_by_model_request_and_pc(page: AnswersPage) -> None:
    page.feed._take(answer_times())
    page.select("REQ_77D0")
    assert rows(page) == ["complete"]
    page.select("desk-07")
    assert len(rows(page)) == 3
    page.select("nothing of the kind")
    assert rows(page) == []


def test_a_console_that_answered_nobody_says_so_and_an_error_is_said(page: AnswersPage) -> None:
    page.feed.failed.emit(ServiceUnreachable("It does not answer."))
    assert page.states.text.text() == "It does not answer."
    page.feed._take([])
    assert page.states.text.text() == "Nobody was answered in the last hour."
    assert not page.bars.isVisible()


def test_bars_are_drawn_for_what_took_time(page: AnswersPage, qtbot: QtBot) -> None:
    page.feed._take(answer_times())
    qtbot.waitUntil(lambda: page.bars.height() == page.bars.sizeHint().height() > 0)
    assert not page.bars.grab().isNull()


# What is said, without a window


def test_each_part_that_took_time_is_a_bar_and_they_are_the_whole() -> None:
    parts = TimeParts(*[10.0] * len(WORDS))
    assert len(bars(parts)) == len(WORDS)
    assert sum(bar.share for bar in bars(parts)) == pytest.approx(1.0)
    assert [bar.name for bar in bars(TimeParts(compute_ms=3.0, link_ms=0.1))] == ["Inference"]
    assert largest_text(TimeParts()) == "-"
    assert largest_text(TimeParts(compute_ms=3.0, link_ms=1.0)) == "Inference, 75%"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "complete"),
        ({"ending": "length"}, "at its limit"),
        ({"ending": "error", "code": "stage_lost"}, "failed: stage lost"),
        ({"ending": "cancelled", "code": "cancelled"}, "cancelled"),
    ],
)
def test_how_an_answer_ended_is_said(changes: dict[str, Any], said: str) -> None:
    assert end_text(msgspec.structs.replace(SLOW, **changes)) == said


def test_a_summary_has_no_gaps_where_nothing_is_known() -> None:
    bare = msgspec.structs.replace(SLOW, cached_tokens=0, drafted=0, pcs=[], request_id="", key_id="")
    assert summary_text(bare) == "812 tokens read, 96 written by nobody.\nRequest - of key -."
    assert stage_rows([StageTime("ann", 1.0, 0.0, 2000.0)]) == [("ann", "1 ms", "0 ms", "2.0 s")]
