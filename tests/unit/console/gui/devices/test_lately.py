"""console.gui.devices.lately: how a PC was, drawn, and its log when it is asked for."""

from __future__ import annotations

import pytest
from pytestqt.qtbot import QtBot

from console.api.admin import types as wire
from console.api.admin.lately import LatelySample, LatelyView, LogView
from console.gui.devices.lately import SHOWN_S, Lately, rested_text, values_of
from console.gui.page import Desk

NOW_S, EVERY_S = 1e9, 15.0
PLACES = round(SHOWN_S / EVERY_S)


def view_of(*samples: LatelySample) -> LatelyView:
    return LatelyView(NOW_S, EVERY_S, list(samples))


def sample(ago_s: float, *, free: int = 2_000_000_000, trip_ms: float | None = 1.5, held: bool = False) -> LatelySample:
    return LatelySample(NOW_S - ago_s, free, trip_ms, held)


def test_samples_lie_where_they_were_taken_and_gaps_stay_gaps() -> None:
    view = view_of(sample(3 * EVERY_S + 2, trip_ms=9.0), sample(EVERY_S, trip_ms=None), sample(1.0, trip_ms=2.0))
    values = values_of(view, lambda one: one.round_trip_ms)
    assert len(values) == PLACES
    assert values[-4:] == [9.0, None, None, 2.0]
    assert not any(values[:-4])


@pytest.mark.parametrize("ago_s", [-60.0, SHOWN_S + EVERY_S, 1e9])
def test_what_lies_outside_of_the_hour_is_not_drawn(ago_s: float) -> None:
    assert values_of(view_of(sample(ago_s)), lambda one: one.round_trip_ms) == [None] * PLACES


def test_how_long_a_pc_was_available_is_worded() -> None:
    samples = [sample(EVERY_S * place, held=place < 80) for place in range(120)]
    assert rested_text(view_of(*samples)) == "Connected for 30 and available for 10 of the last 60 minutes."
    assert rested_text(view_of()) == "It was not connected here in the last hour."


def test_a_log_that_cannot_be_had_is_told_and_may_be_asked_for_again(desk: Desk, qtbot: QtBot) -> None:
    lately = Lately(desk)
    qtbot.addWidget(lately)
    lately.follow("nobody")
    lately.show()
    qtbot.waitUntil(lambda: "nobody" in lately.rested.text())
    lately.read.click()
    assert not lately.read.isEnabled()
    qtbot.waitUntil(lately.read.isEnabled)
    assert "nobody" in lately.log_said.text()
    lately._show_log("nobody", LogView(["first", "last"]))
    assert lately.log.toPlainText() == "first\nlast"
    lately._show_log("ann", LogView(["of another PC"]))
    assert lately.log.toPlainText() == "first\nlast"
    lately.hide()


def test_who_may_not_operate_is_offered_no_log(quiet_desk: Desk, qtbot: QtBot) -> None:
    quiet_desk.me = wire.Me("", "ada", ["view"])
    lately = Lately(quiet_desk)
    qtbot.addWidget(lately)
    lately.show()
    assert lately.read.isHidden()


def test_a_pc_is_drawn_and_another_one_begins_with_nothing(quiet_desk: Desk, qtbot: QtBot) -> None:
    lately = Lately(quiet_desk)
    qtbot.addWidget(lately)
    lately.follow("ann")
    lately._show(view_of(sample(0.0), sample(EVERY_S)))
    assert lately.memory.accessibleName() == "Free memory: free 2.0 GB"
    assert lately.round_trip.accessibleName() == "Round trip: there and back 1.5 ms"
    lately.follow("bob")
    assert lately.memory.accessibleName() == "Free memory: nothing yet"
    assert lately.log.toPlainText() == lately.rested.text() == ""
