"""The Qt bindings themselves: a build that loses references to None kills the program after some thousand calls."""

from __future__ import annotations

import sys

from PySide6.QtWidgets import QApplication, QLabel


def test_calls_without_a_result_lose_no_reference_to_none(qapp: QApplication) -> None:
    label = QLabel()
    before = sys.getrefcount(None)
    for number in range(500):
        label.setText(str(number))
    assert abs(sys.getrefcount(None) - before) < 100
