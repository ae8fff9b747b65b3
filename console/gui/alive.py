"""Answers come when they come: by then the window that asked may be closed and gone."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from PySide6.QtCore import QObject
from shiboken6 import isValid

T = TypeVar("T")


def alive(owner: QObject, do: Callable[[T], object]) -> Callable[[T], None]:
    """Return what does `do` unless `owner` was closed and is gone. For every answer that touches a widget."""

    def call(answer: T) -> None:
        if isValid(owner):
            do(answer)

    return call
