"""The chat window: a conversation, and the page to sign in on."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from PySide6.QtCore import QSize
from pytestqt.qtbot import QtBot

from tests.support.api import ScriptedModel, chat_app, says
from tests.support.chat_windows import chat_window, ended, send, served, sign_in
from tests.support.pictured_fleet import NOW_S
from tests.support.pictures import check

SIZE = QSize(1100, 720)
ANSWER = """Frost forms when the ground is **colder than the air above it**.

| Sky | Frost |
|---|---|
| clear | likely |
| cloudy | rare |

```python
def frosty(ground: float, dew: float) -> bool:
    \"\"\"Whether there is frost.\"\"\"
    return ground <= 0 and dew <= ground
```

1. Clear nights lose heat.
2. Still air stays near the ground.
"""


@pytest.fixture(autouse=True)
def one_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: NOW_S)


def test_conversation(tmp_path: Path, qtbot: QtBot) -> None:
    model = ScriptedModel(says(*ANSWER.splitlines(keepends=True)), model_id="Qwen3-8B", context_tokens=8192)
    with served(chat_app(model)) as server, chat_window(tmp_path) as window:
        sign_in(window, qtbot, server.url)
        send(window, "Why is there frost on some nights only?")
        ended(window, qtbot)
        qtbot.wait(300)  # code is coloured a moment after it came
        check("chat-conversation", window, SIZE)


def test_sign_in(tmp_path: Path, qtbot: QtBot) -> None:
    with chat_window(tmp_path) as window:
        qtbot.waitUntil(lambda: window.stack.currentWidget() is window.signin)
        check("chat-sign-in", window, SIZE)
