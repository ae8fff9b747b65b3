"""console.chat.files: what people choose is read whole or refused, and never waited for without end."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from console.chat.errors import FileUnusable, ImportRefused
from console.chat.files import read_chat, read_texts, write_chat
from console.chat.records import Attachment, Chat, Message, Setup

CHAT = Chat(id="c", title="A chat", setup=Setup("small"), leaf_id="1")
SAID = [Message(id="1", chat_id="c", parent_id=None, role="user", text="Hi")]


def test_texts_are_read_and_each_other_file_has_its_reason(tmp_path: Path) -> None:
    contents = {"a.py": b"\xef\xbb\xbfx = 1", "b.png": b"\x89PNG\xff", "c.txt": b"a\x00b", "d.txt": b"x" * 1_000_001}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    names = [*contents, "nowhere", "."]
    texts, problems = read_texts([tmp_path / name for name in names])
    assert texts == [Attachment("a.py", "x = 1")]
    expected = ("no text file", "no text file", "larger than a megabyte", "cannot be read", "no file")
    assert [said in problem for said, problem in zip(expected, problems, strict=True)] == [True] * 5


@pytest.mark.skipif(sys.platform == "win32", reason="named pipes in folders")
def test_what_never_ends_or_never_begins_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    texts, problems = read_texts([tmp_path / "pipe", Path("/dev/zero")])
    assert (texts, len(problems)) == ([], 2)
    with pytest.raises(FileUnusable, match="no file"):
        read_chat(Path("/dev/zero"))


def test_a_chat_is_written_and_read_back(tmp_path: Path) -> None:
    write_chat(tmp_path / "chat.json", CHAT, SAID, SAID, "json")
    chat, messages = read_chat(tmp_path / "chat.json")
    assert (chat.title, [message.text for message in messages]) == ("A chat", ["Hi"])
    write_chat(tmp_path / "chat.json", CHAT, SAID, SAID, "md")
    with pytest.raises(ImportRefused, match="no chat that Fallow exported"):
        read_chat(tmp_path / "chat.json")


def test_what_cannot_be_written_is_said_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(FileUnusable, match="cannot be written"):
        write_chat(tmp_path / "nowhere" / "chat.md", CHAT, SAID, SAID, "md")
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_too_large_for_a_chat_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("console.chat.files.MOST_CHAT_BYTES", 100)
    (tmp_path / "chat.json").write_bytes(b" " * 101)
    with pytest.raises(FileUnusable, match="too large"):
        read_chat(tmp_path / "chat.json")
