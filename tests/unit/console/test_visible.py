"""console.visible: names that others chose cannot pass for something else, wherever they come in and are shown."""

from __future__ import annotations

import io

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from console import tables
from console.visible import all_visible, visible


@given(st.text())
def test_any_text_becomes_one_line_of_as_many_letters(text: str) -> None:
    shown = visible(text)
    assert len(shown) == len(text)
    assert shown.isprintable()
    assert len(shown.splitlines()) <= 1
    assert visible(shown) == shown


def test_names_in_any_script_stay_as_they_are() -> None:
    for name in ("pc-1", "Büro 3", "研究室", "لابتوب", "a (b)"):
        assert visible(name) == name
    assert visible("a\nb\u202ec\x1b") == "a�b�c�"


def test_what_a_pc_says_of_itself_is_made_visible_in_lists_as_well() -> None:
    assert all_visible({"host": "a\n", "devices": ["CPU\x1b"], "cores": 4}) == {
        "host": "a�",
        "devices": ["CPU�"],
        "cores": 4,
    }


def test_a_name_neither_moves_the_cursor_nor_makes_a_row_of_its_own() -> None:
    out = io.StringIO()
    Console(file=out, width=120).print(tables.table(["name"], [["one\nZZZZ-ZZZZ\x1b[2K\u202e"], ["two"]]))
    lines = [line.rstrip() for line in out.getvalue().rstrip("\n").split("\n")]
    assert lines == ["name", "one ZZZZ-ZZZZ�[2K�", "two"]
