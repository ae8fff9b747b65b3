"""A chat as a file: Markdown and HTML to read, JSON to read back. No I/O.

What can be read back is `ExportedChat`; whoever wants to import another program's chats makes one of those.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Literal

import msgspec

from console.chat.errors import ImportRefused
from console.chat.records import Chat, Message, Setup, new_id
from console.chat.render import LIGHT, markdown_html

Format = Literal["md", "json", "html"]
SAID_BY = {"user": "You", "assistant": "Assistant"}


class ExportedChat(msgspec.Struct, frozen=True, kw_only=True):
    """A chat in a file. `messages` are of all branches, parents first; `leaf_id` ends the one that was shown."""

    format: Literal["fallow-chat"] = "fallow-chat"
    version: Literal[1] = 1
    title: str
    created_s: float
    setup: Setup
    leaf_id: str | None
    messages: list[Message]


def as_json(chat: Chat, messages: Sequence[Message]) -> str:
    """Return the chat with these messages as JSON."""
    exported = ExportedChat(
        title=chat.title, created_s=chat.created_s, setup=chat.setup, leaf_id=chat.leaf_id, messages=list(messages)
    )
    return msgspec.json.format(msgspec.json.encode(exported)).decode() + "\n"


def read_json(content: bytes) -> tuple[Chat, list[Message]]:
    """Read what `as_json` wrote; the chat and its messages get ids of their own. Raises ImportRefused."""
    try:
        read = msgspec.json.decode(content, type=ExportedChat)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ImportRefused(f"This file is no chat that Fallow exported: {error}.") from None
    chat_id = new_id()
    ids: dict[str, str] = {}
    messages = []
    for message in read.messages:
        if message.id in ids or (message.parent_id is not None and message.parent_id not in ids):
            raise ImportRefused("This file is damaged: its messages do not belong together; export the chat again.")
        ids[message.id] = new_id()
        parent_id = None if message.parent_id is None else ids[message.parent_id]
        state = "stopped" if message.state == "open" else message.state
        messages.append(
            msgspec.structs.replace(
                message, id=ids[message.id], chat_id=chat_id, parent_id=parent_id, state=state
            )
        )  # fmt: skip
    leaf_id = ids.get(read.leaf_id or "", messages[-1].id if messages else None)
    chat = Chat(id=chat_id, title=read.title, named=True, setup=read.setup, leaf_id=leaf_id, created_s=read.created_s)
    return chat, messages


def as_markdown(chat: Chat, messages: Sequence[Message]) -> str:
    """Return one branch as Markdown."""
    parts = [f"# {chat.title or 'Chat'}"]
    if chat.setup.system:
        parts.append("## System\n\n" + chat.setup.system)
    parts += [f"## {SAID_BY[message.role]}\n\n{message.content()}" for message in messages]
    return "\n\n".join(parts) + "\n"


def as_html(chat: Chat, messages: Sequence[Message]) -> str:
    """Return one branch as a page that loads nothing from elsewhere."""
    parts = [
        f"<section><h2>{SAID_BY[message.role]}</h2>{markdown_html(message.content(), LIGHT)}</section>"
        for message in messages
    ]
    if chat.setup.system:
        parts.insert(0, f"<section><h2>System</h2>{markdown_html(chat.setup.system, LIGHT)}</section>")
    when = datetime.fromtimestamp(chat.created_s, UTC).strftime("%Y-%m-%d")
    title = html.escape(chat.title or "Chat")
    return _PAGE.format(title=title, when=when, body="\n".join(parts))


def exported(chat: Chat, branch: Sequence[Message], whole: Sequence[Message], format_: Format) -> str:
    """Return a chat in a format: JSON holds `whole`, what people read only `branch`."""
    if format_ == "json":
        return as_json(chat, whole)
    return as_markdown(chat, branch) if format_ == "md" else as_html(chat, branch)


def file_name(chat: Chat, format_: Format) -> str:
    """Return a name for the file that every system takes."""
    kept = "".join(letter if letter.isalnum() or letter in " -_" else "-" for letter in chat.title)
    return f"{' '.join(kept.split())[:60].strip(' -') or 'chat'}.{format_}"


_PAGE = """<!DOCTYPE html>
<html><head><meta charset="utf-8"><title>{title}</title>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<style>
body {{ font-family: sans-serif; line-height: 1.5; max-width: 46em; margin: 2em auto; padding: 0 1em; }}
pre {{ overflow-x: auto; padding: 0.8em; background: #edefe9; }}
table {{ border-collapse: collapse; }} td, th {{ border: 1px solid #7d8776; padding: 0.2em 0.6em; }}
blockquote {{ border-left: 3px solid #b9c0b3; margin-left: 0; padding-left: 1em; }}
</style></head><body>
<h1>{title}</h1>
<p>{when}</p>
{body}
</body></html>
"""
