"""Files in the window: the GUI thread waits for none of them."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from console.chat.records import Attachment
from console.chat.window import filework
from tests.support.chat_windows import Talk
from tests.support.patience import PATIENCE_S


@pytest.mark.parametrize(
    ("does", "work"), [("export", "write_chat"), ("import", "read_chat"), ("attach", "read_texts")]
)
def test_files_are_read_and_written_beside_the_window(
    does: str, work: str, talk: Talk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    talk.ask("Hi")
    files, path = talk.window.files, tmp_path / "chat.json"
    files.export_to(path, "json")
    talk.qtbot.waitUntil(lambda: talk.window.said.text.text() == "The chat is in chat.json.")
    real, threads = getattr(filework, work), []

    def watched(*values: object) -> object:
        threads.append(threading.current_thread())
        return real(*values)

    monkeypatch.setattr(filework, work, watched)
    ends: list[str] = []
    files.said.connect(ends.append)
    talk.window.desk.opened.connect(lambda: ends.append("opened"))
    talk.window.desk.files_changed.connect(lambda: ends.append("attached"))
    if does == "export":
        files.export_to(path, "json")
    elif does == "import":
        files.import_from(path)
    else:
        files.attach([path])
    assert ends == []
    talk.qtbot.waitUntil(lambda: bool(ends))
    assert threading.main_thread() not in threads


def test_a_file_stands_where_it_was_attached_whatever_is_open_when_it_is_read(
    talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    talk.ask("Hi")
    window, read = talk.window, threading.Event()
    chat_id = window.desk.open_id

    def slowly(_: list[Path]) -> tuple[list[Attachment], list[str]]:
        assert read.wait(PATIENCE_S)
        return [Attachment("a.py", "x")], ["b.py is no text file."]

    monkeypatch.setattr(filework, "read_texts", slowly)
    window.page.composer.attaches.emit([Path("a.py"), Path("b.py")])
    window.actions_["new"].trigger()
    read.set()
    talk.qtbot.waitUntil(lambda: "b.py is no text file" in window.said.text.text())
    assert window.page.composer.files == []
    window.desk.open(chat_id)
    assert [file.name for file in window.page.composer.files] == ["a.py"]
    window.page.composer.taken()
    assert window.desk.files == []


@pytest.mark.parametrize("does", ["export", "import"])
def test_what_fails_is_said(does: str, talk: Talk, tmp_path: Path) -> None:
    talk.ask("Hi")
    if does == "export":
        talk.window.files.export_to(tmp_path / "nowhere" / "chat.md", "md")
    else:
        talk.window.files.import_from(tmp_path / "nowhere")
    wanted = "cannot be written" if does == "export" else "cannot be read"
    talk.qtbot.waitUntil(lambda: wanted in talk.window.said.text.text())
