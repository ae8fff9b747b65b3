"""console.chat.export: chats as files, and back."""

from __future__ import annotations

import pytest

from console.chat.errors import ImportRefused
from console.chat.export import as_html, as_json, as_markdown, exported, file_name, read_json
from console.chat.records import Chat, Facts, Message, Setup

CHAT = Chat(id="c", title="Trees & <more>", setup=Setup("small", "Be brief."), leaf_id="b", created_s=86_400.0)
MESSAGES = [
    Message(id="a", chat_id="c", parent_id=None, role="user", text="What is `x`?"),
    Message(id="b", chat_id="c", parent_id="a", role="assistant", text="<script>x</script>", facts=Facts(pcs=["pc"])),
    Message(id="d", chat_id="c", parent_id="a", role="assistant", text="Other", state="open"),
]


def test_export_as_markdown_has_who_said_what() -> None:
    text = as_markdown(CHAT, MESSAGES[:2])
    assert text.startswith("# Trees & <more>\n\n## System\n\nBe brief.\n\n## You\n\nWhat is `x`?\n\n## Assistant\n\n")


def test_export_as_html_is_a_page_in_which_nothing_runs_or_loads() -> None:
    page = as_html(CHAT, MESSAGES[:2])
    assert "<title>Trees &amp; &lt;more&gt;</title>" in page
    assert "default-src 'none'" in page
    assert "<script>" not in page
    assert "1970-01-02" in page


def test_export_as_json_comes_back_with_all_branches_and_ids_of_its_own() -> None:
    chat, messages = read_json(as_json(CHAT, MESSAGES).encode())
    assert (chat.title, chat.setup, chat.leaf_id) == (CHAT.title, CHAT.setup, messages[1].id)
    assert [message.text for message in messages] == [message.text for message in MESSAGES]
    assert [message.parent_id for message in messages] == [None, messages[0].id, messages[0].id]
    assert messages[1].facts == MESSAGES[1].facts
    assert messages[2].state == "stopped"
    assert not {message.id for message in messages} & {"a", "b", "d"}


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff", b'{"format":"other"}', b"[" * 100_000])
def test_what_is_no_export_is_refused(content: bytes) -> None:
    with pytest.raises(ImportRefused, match="no chat that Fallow exported"):
        read_json(content)


def test_messages_that_do_not_belong_together_are_refused() -> None:
    with pytest.raises(ImportRefused, match="damaged"):
        read_json(as_json(CHAT, MESSAGES[1:]).encode())


def test_what_people_read_is_one_branch_and_json_is_all() -> None:
    assert "Other" not in exported(CHAT, MESSAGES[:2], MESSAGES, "md")
    assert "Other" in exported(CHAT, MESSAGES[:2], MESSAGES, "json")
    assert "<h2>You</h2>" in exported(CHAT, MESSAGES[:2], MESSAGES, "html")
    assert file_name(CHAT, "md") == "Trees - -more.md"
    assert file_name(Chat(id="c", title="../"), "json") == "chat.json"
