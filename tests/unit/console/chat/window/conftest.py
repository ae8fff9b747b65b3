"""A window in which somebody talks with a served model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from tests.support.api import ScriptedModel, chat_app, says
from tests.support.chat_windows import Talk, chat_window, served, sign_in


@pytest.fixture
def talk(tmp_path: Path, qtbot: QtBot) -> Iterator[Talk]:
    """A window that is signed in; the model says "Good day"."""
    model = ScriptedModel(says("Good ", "day"), context_tokens=1000)
    with served(chat_app(model)) as server, chat_window(tmp_path / "chat") as window:
        sign_in(window, qtbot, server.url)
        yield Talk(model, server, window, qtbot)
