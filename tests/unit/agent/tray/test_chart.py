"""agent.tray.pages.chart: the axis, and drawing anything."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PySide6.QtCore import QEvent, QPoint, Qt
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QApplication

from agent.tray.pages.chart import Bar, Chart, ticks_for


@pytest.mark.parametrize(
    ("largest", "ticks"),
    [(1, [0, 0.5, 1]), (7, [0, 2, 4, 6, 8]), (8.1, [0, 5, 10]), (41_230, [0, 20_000, 40_000, 60_000])],
)
def test_the_axis_has_round_numbers(largest: float, ticks: list[float]) -> None:
    assert ticks_for(largest) == pytest.approx(ticks)


@given(st.floats(1e-6, 1e15))
def test_the_axis_holds_the_largest_bar_and_wastes_little(largest: float) -> None:
    ticks = ticks_for(largest)
    assert largest * (1 - 1e-6) <= ticks[-1] <= largest * 2
    assert 2 <= len(ticks) <= 5


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_nothing_and_nonsense_get_an_empty_axis(value: float) -> None:
    assert ticks_for(value) == [0, 1, 2, 3, 4]


def chart_of(*values: float) -> Chart:
    chart = Chart("Contribution")
    chart.resize(400, 200)
    chart.show_bars([Bar(str(place), value, f"bar {place}") for place, value in enumerate(values)], str)
    return chart


@pytest.mark.parametrize("values", [(), (0.0,), (1.0, 2.0, 3.0), tuple(map(float, range(91)))])
def test_any_number_of_bars_can_be_drawn(qapp: QApplication, values: tuple[float, ...]) -> None:
    assert not chart_of(*values).grab().isNull()


def test_a_higher_bar_is_higher(qapp: QApplication) -> None:
    chart = chart_of(1.0, 4.0)
    image = chart.grab().toImage()
    accent = "#2f6b3c"
    columns = [sum(image.pixelColor(x, y).name() == accent for y in range(200)) for x in range(400)]
    assert max(columns[:200]) * 3 < max(columns[200:])


def test_the_bar_under_the_pointer_is_found(qapp: QApplication) -> None:
    chart = chart_of(1.0, 4.0)
    assert chart._bar_at(QPoint(395, 100).toPointF()) == 1
    assert chart._bar_at(QPoint(0, 100).toPointF()) == -1


@pytest.mark.parametrize("key", [0x0123_4567, 0, -1, Qt.Key.Key_A.value])
def test_a_key_that_means_nothing_here_is_left_to_others(qapp: QApplication, key: int) -> None:
    chart = chart_of(1.0, 2.0)
    chart.choose(1)
    event = QKeyEvent(QEvent.Type.KeyPress, key, Qt.KeyboardModifier.NoModifier)
    chart.keyPressEvent(event)
    assert (chart.place, event.isAccepted()) == (1, False)


def test_fewer_bars_forget_a_choice_that_is_gone(qapp: QApplication) -> None:
    chart = chart_of(1.0, 2.0, 3.0)
    chart.choose(2)
    assert chart.accessibleDescription() == "bar 2"
    chart.show_bars([Bar("", 1.0, "only one")], str)
    assert (chart.place, chart.accessibleDescription()) == (0, "only one")
