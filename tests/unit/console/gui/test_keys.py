"""Keys of the pages: one key presses one button, also where pages have many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from PySide6.QtGui import QKeySequence
from PySide6.QtWidgets import QAbstractButton, QLabel, QTabWidget

from console.gui.page import Desk, Page
from console.gui.pages import PAGES


@pytest.mark.parametrize("make", PAGES, ids=lambda make: make.__name__)
def test_no_two_buttons_of_a_page_have_the_same_key(
    quiet_desk: Desk, shown: Callable[[Page], Page], make: type[Page]
) -> None:
    page = shown(make(quiet_desk))
    tabs = page.findChild(QTabWidget)
    places = [] if tabs is None else range(tabs.count())
    names = [] if tabs is None else [tabs.tabText(place) for place in places]
    sheets = [page] if tabs is None else [sheet for place in places if (sheet := tabs.widget(place)) is not None]
    for sheet in sheets:
        texts = [*names, *(button.text() for button in sheet.findChildren(QAbstractButton))]
        texts += [name.text() for name in sheet.findChildren(QLabel) if name.buddy() is not None]
        keys = Counter(key for text in texts if (key := QKeySequence.mnemonic(text).toString()))
        assert [key for key, many in keys.items() if many > 1] == []
