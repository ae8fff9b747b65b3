"""What is handed to other programs: addresses and commands on the clipboard, and the chat window."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtGui import QGuiApplication

from console.access import Access
from console.addresses import reach_text
from console.gui.endpoint import base_url, curl
from console.gui.programs import open_chat

Say = Callable[[str, bool], object]
"""Hears what came of it, and whether it failed."""


def copy_base_url(access: Access, said: Say) -> None:
    """Copy what OpenAI clients take for their base URL."""
    url = base_url(access)
    QGuiApplication.clipboard().setText(url)
    said(f"{url} is copied. {reach_text(access.url)}".strip(), False)


def copy_curl(access: Access, model: str, said: Say) -> None:
    """Copy a command that asks a model."""
    QGuiApplication.clipboard().setText(curl(access, model))
    about = "The command is copied. It takes an API key from the variable FALLOW_KEY."
    said(f"{about} {reach_text(access.url)}".strip(), False)


def begin_chat(said: Say) -> None:
    """Open the chat window."""
    if not open_chat():
        said("The chat window could not be started; is fallow-chat installed on this PC?", True)
