"""agent.look.palettes: everybody can read it."""

from __future__ import annotations

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QColor, QPalette
from PySide6.QtWidgets import QApplication, QCheckBox

from agent.look import palettes
from agent.look.palettes import COLOURS, SCHEMES, Scheme


def luminance(colour: str) -> float:
    """Relative luminance as WCAG 2 defines it."""
    shown = QColor(colour)
    parts = (shown.redF(), shown.greenF(), shown.blueF())
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return float(0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2])


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_text_can_be_read_on_everything_it_is_written_on(scheme: Scheme) -> None:
    colours = COLOURS[scheme]
    for ground in (colours.window, colours.base, colours.alternate, colours.button):
        assert contrast(colours.text, ground) >= 7
    for ground in (colours.window, colours.base):
        for colour in (colours.quiet, colours.good, colours.bad):
            assert contrast(colour, ground) >= 4.5
    assert contrast(colours.on_accent, colours.accent) >= 4.5


@pytest.mark.parametrize("scheme", SCHEMES)
def test_what_can_be_pressed_has_an_outline_that_can_be_seen(scheme: Scheme) -> None:
    colours = COLOURS[scheme]
    assert contrast(colours.outline, colours.window) >= 3
    assert contrast(colours.accent, colours.window) >= 3


def test_high_contrast_is_higher() -> None:
    assert contrast(COLOURS["contrast"].text, COLOURS["contrast"].window) == pytest.approx(21)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_widget_knows_the_scheme_it_is_shown_in(qapp: QApplication, scheme: Scheme) -> None:
    assert palettes.scheme_of(palettes.palette(scheme)) == scheme
    assert palettes.scheme_of(QPalette(QColor("#123456"))) == "light"


def test_an_empty_check_box_is_seen_on_black(qapp: QApplication) -> None:
    palettes.apply(qapp, "contrast")
    try:
        box = QCheckBox()
        box.resize(box.sizeHint())
        image = box.grab().toImage()
        found = {image.pixelColor(x, y).name() for x in range(image.width()) for y in range(image.height())}
        assert "#ffffff" in found
    finally:
        palettes.apply(qapp, "light")


def test_the_desktops_colours_are_followed_only_while_that_is_wanted(
    qapp: QApplication, monkeypatch: pytest.MonkeyPatch
) -> None:
    desktop: list[Scheme] = ["light"]
    shown: list[Scheme] = []
    monkeypatch.setattr(palettes, "system_scheme", lambda _: desktop[-1])
    monkeypatch.setattr(palettes, "apply", lambda _, scheme: shown.append(scheme))

    def desktop_turns(scheme: Scheme) -> None:
        desktop.append(scheme)
        shown.clear()
        qapp.styleHints().colorSchemeChanged.emit(Qt.ColorScheme.Unknown)

    palettes.choose(qapp, "system")
    palettes.choose(qapp, "contrast")
    desktop_turns("dark")
    assert shown == []
    palettes.choose(qapp, "system")
    palettes.choose(qapp, "system")
    assert shown == ["dark", "dark"]
    desktop_turns("light")
    assert shown == ["light"]
    palettes.choose(qapp, "light")
    desktop_turns("dark")
    assert shown == []


def test_a_desktop_that_says_nothing_gets_light(qapp: QApplication) -> None:
    assert palettes.system_scheme(qapp) == "light"
