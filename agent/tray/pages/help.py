"""What this program is, for somebody who did not install it, and how to use it without a mouse."""

from __future__ import annotations

from importlib.metadata import version

from PySide6.QtCore import qVersion

from agent.look.widgets import heading, label
from agent.tray.pages.page import Page
from agent.tray.texts import Texts

SECTIONS = ("what", "when", "rights", "keys")


class HelpPage(Page):
    """Only text."""

    name = "help"

    def __init__(self, texts: Texts) -> None:
        super().__init__(texts)
        for section in SECTIONS:
            self.rows.addWidget(heading(texts(f"help.{section}_heading")))
            self.rows.addWidget(label(texts(f"help.{section}")))
        self.rows.addWidget(heading(texts("help.about_heading")))
        self.rows.addWidget(label(texts("help.about", version=version("fallow"), qt=qVersion()), quiet=True))
        self.rows.addStretch(1)
