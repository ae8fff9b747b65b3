"""Files that people choose: texts that go along with a question, chats that are written out and read back. Blocks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from console.chat.errors import FileUnusable
from console.chat.export import Format, exported, read_json
from console.chat.records import Attachment, Chat, Message

MOST_TEXT_BYTES = 1_000_000
MOST_CHAT_BYTES = 64 << 20


def read_texts(paths: Sequence[Path]) -> tuple[list[Attachment], list[str]]:
    """Read text files; returns them, and a sentence for each that cannot go along."""
    texts, problems = [], []
    for path in paths:
        try:
            texts.append(_read_text(path))
        except FileUnusable as error:
            problems.append(str(error))
    return texts, problems


def write_chat(path: Path, chat: Chat, branch: Sequence[Message], whole: Sequence[Message], format_: Format) -> None:
    """Write a chat in a format; an old file stays until the new one is whole. Raises FileUnusable."""
    part = path.with_name(f".{path.name}.part")
    try:
        try:
            part.write_text(exported(chat, branch, whole, format_), "utf-8")
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise FileUnusable(f"{path.name} cannot be written: {error.strerror}.") from None


def read_chat(path: Path) -> tuple[Chat, list[Message]]:
    """Read a chat that was exported as JSON. Raises FileUnusable or ImportRefused."""
    return read_json(_read(path, MOST_CHAT_BYTES, f"{path.name} is too large for a chat; choose another file."))


def _read_text(path: Path) -> Attachment:
    content = _read(path, MOST_TEXT_BYTES, f"{path.name} is larger than a megabyte; attach a part of it.")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        text = "\x00"
    if "\x00" in text:
        raise FileUnusable(f"{path.name} is no text file; only text can be attached.")
    return Attachment(path.name, text.removeprefix("\ufeff"))


def _read(path: Path, most_bytes: int, too_large: str) -> bytes:
    try:
        # What is no file, a pipe for one, might never end, or never begin.
        if path.exists() and not path.is_file():
            raise FileUnusable(f"{path.name} is no file; choose a file.")
        with path.open("rb") as file:
            content = file.read(most_bytes + 1)
    except OSError as error:
        raise FileUnusable(f"{path.name} cannot be read: {error.strerror}.") from None
    if len(content) > most_bytes:
        raise FileUnusable(too_large)
    return content
