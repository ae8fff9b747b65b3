"""console.chat.chatfile, store and schema: what is kept, found, brought back and gone for good."""

from __future__ import annotations

import queue
import sqlite3
import stat
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from console.chat.chatfile import ChatFile, query_of
from console.chat.errors import StoreTooNew, StoreUnusable
from console.chat.records import (
    Attachment,
    Chat,
    Facts,
    Folder,
    Message,
    Preset,
    Sampling,
    Setup,
    default_preset,
    new_id,
    title_of,
)
from console.chat.schema import MIGRATIONS, connect
from console.chat.store import Store
from tests.conftest import ExpectLogs
from tests.support.patience import PATIENCE_S


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "chats.sqlite"


@pytest.fixture
def file(path: Path) -> Iterator[ChatFile]:
    with closing(ChatFile(path)) as opened:
        yield opened


def add_chat(file: ChatFile, *texts: str, **values: Any) -> tuple[Chat, list[Message]]:
    chat = Chat(id=new_id(), **({"title": "A chat"} | values))
    messages: list[Message] = []
    for place, text in enumerate(texts):
        parent = messages[-1].id if messages else None
        role: Any = "assistant" if place % 2 else "user"
        messages.append(Message(id=new_id(), chat_id=chat.id, parent_id=parent, role=role, text=text))
    file.save_chat(chat)
    file.save_messages(messages)
    return chat, messages


def test_a_chat_comes_back_as_it_was_kept(path: Path) -> None:
    setup = Setup("small", "Be brief.", Sampling(temperature=0.5, stop=["\n"], seed=7))
    with closing(ChatFile(path)) as file:
        folder = Folder(new_id(), "Work")
        file.save_folder(folder)
        chat, messages = add_chat(
            file, "Hi", "Hello", folder_id=folder.id, pinned=True, setup=setup, draft="not sent", created_s=1.5
        )
        answered = msgspec.structs.replace(
            messages[1], facts=Facts(model="small", pcs=["pc-1"]), attachments=[Attachment("a.txt", "x")]
        )
        file.save_messages([answered])
    with closing(ChatFile(path)) as file:
        assert file.chats() == [chat]
        assert file.messages(chat.id) == [messages[0], answered]
        assert file.folders() == [folder]


def test_pinned_chats_come_first_then_the_latest(file: ChatFile) -> None:
    for title, pinned, changed_s in (("old", False, 1.0), ("new", False, 3.0), ("pinned", True, 2.0)):
        add_chat(file, title=title, pinned=pinned, changed_s=changed_s)
    assert [chat.title for chat in file.chats()] == ["pinned", "new", "old"]


def test_search_across_chats_finds_beginnings_of_words_in_any_order(file: ChatFile) -> None:
    chat, messages = add_chat(file, "Where is the Eiffel tower?", "In Páris.")
    add_chat(file, "Something else")
    (hit,) = file.search("tow eif")
    assert (hit.chat_id, hit.message_id) == (chat.id, messages[0].id)
    assert hit.excerpt == "Where is the Eiffel tower?"
    assert [hit.message_id for hit in file.search("paris")] == [messages[1].id]
    assert file.search("else nowhere") == []


@pytest.mark.parametrize("words", ["", " ", '"', "*", 'a"b', "NEAR(", "x AND", "col:", "-a", "😀"])
def test_whatever_is_typed_is_a_search_and_never_an_error(file: ChatFile, words: str) -> None:
    add_chat(file, "text")
    file.search(words)


def test_words_that_were_edited_away_are_not_found_any_more(file: ChatFile) -> None:
    _, messages = add_chat(file, "before")
    file.save_messages([msgspec.structs.replace(messages[0], text="after")])
    assert file.search("before") == []
    assert len(file.search("after")) == 1


def test_a_deleted_chat_is_out_of_sight_and_comes_back_whole(file: ChatFile) -> None:
    chat, messages = add_chat(file, "Hi", "Hello")
    file.delete_chat(chat.id, 10.0)
    assert file.chats() == []
    assert file.search("hello") == []
    file.restore_chat(chat.id)
    assert file.chats() == [chat]
    assert file.messages(chat.id) == messages


def test_deleted_messages_come_back(file: ChatFile) -> None:
    chat, messages = add_chat(file, "Hi", "Hello", "Why?")
    ids = [message.id for message in messages[1:]]
    file.delete_messages(ids, 10.0)
    assert file.messages(chat.id) == messages[:1]
    file.restore_messages(ids)
    assert file.messages(chat.id) == messages


def test_what_was_deleted_long_ago_is_gone_for_good_however_long_the_chat(file: ChatFile, path: Path) -> None:
    chat, _ = add_chat(file, *["word"] * 1500)
    kept, messages = add_chat(file, "secret words", *["more"] * 1200)
    file.delete_chat(chat.id, 10.0)
    file.delete_messages([message.id for message in messages], 20.0)
    file.purge(15.0)
    file.restore_chat(chat.id)
    assert file.chats() == [kept]
    file.purge(25.0)
    file.restore_messages([message.id for message in messages])
    assert file.messages(kept.id) == []


def words_left(path: Path, word: bytes) -> list[str]:
    return [part.name for part in path.parent.iterdir() if word in part.read_bytes()]


@pytest.mark.parametrize("what", ["chat", "message"])
def test_what_is_gone_for_good_leaves_no_word_in_the_file(what: str, file: ChatFile, path: Path) -> None:
    kept, _ = add_chat(file, "a wombat digs")
    chat, messages = add_chat(file, "Hi", "a quokka jumps")
    if what == "chat":
        file.delete_chat(chat.id, 10.0)
    else:
        file.delete_messages([messages[1].id], 10.0)
    file.purge(5.0)
    assert words_left(path, b"quokka")
    file.purge(15.0)
    assert words_left(path, b"quokka") == []
    assert [hit.chat_id for hit in file.search("wombat")] == [kept.id]
    assert file.search("quokka") == []


def test_erasing_leaves_no_word_in_the_file(file: ChatFile, path: Path) -> None:
    add_chat(file, "a quokka jumps", title="a quokka")
    file.save_preset(Preset(id="1", name="mine"))
    file.erase()
    assert (file.chats(), len(file.presets())) == ([], 1)
    assert words_left(path, b"quokka") == []


def test_presets_have_one_default_for_all_and_one_for_each_model(file: ChatFile) -> None:
    for name, model in (("a", ""), ("b", ""), ("c", "small")):
        file.save_preset(Preset(id=name, name=name, model=model, is_default=True, sampling=Sampling(top_p=0.5)))
    presets = file.presets()
    assert [preset.name for preset in presets if preset.is_default] == ["b", "c"]
    chosen = default_preset(presets, "small"), default_preset(presets, "large"), default_preset([], "x")
    assert [preset.name if preset else None for preset in chosen] == ["c", "b", None]
    file.delete_preset("c")
    assert len(file.presets()) == 2


def test_a_removed_folder_lets_its_chats_go(file: ChatFile) -> None:
    folder = Folder(new_id(), "Work")
    file.save_folder(folder)
    chat, _ = add_chat(file, folder_id=folder.id)
    file.save_folder(Folder(folder.id, "Home"))
    assert file.folders() == [Folder(folder.id, "Home")]
    file.delete_folder(folder.id)
    assert file.chats() == [msgspec.structs.replace(chat, folder_id=None)]


def test_an_answer_that_was_cut_off_by_the_end_of_the_program_is_stopped(path: Path) -> None:
    with closing(ChatFile(path)) as file:
        chat, messages = add_chat(file, "Hi", "Hel")
        file.save_messages([msgspec.structs.replace(messages[1], state="open")])
        file.close_open()
        assert [message.state for message in file.messages(chat.id)] == ["whole", "stopped"]


def test_a_file_is_copied_before_it_is_migrated_and_whole_or_not_at_all(path: Path) -> None:
    with closing(ChatFile(path)) as file:
        chat, _ = add_chat(file, "Hi")

    def more(connection: sqlite3.Connection) -> None:
        connection.execute("ALTER TABLE chats ADD COLUMN colour TEXT")

    def broken(connection: sqlite3.Connection) -> None:
        connection.execute("DROP TABLE messages")
        connection.execute("nonsense")

    with pytest.raises(StoreUnusable, match="cannot be opened"):
        connect(path, (*MIGRATIONS, more, broken))
    with closing(connect(path, (*MIGRATIONS, more))) as connection:
        assert connection.execute("PRAGMA user_version").fetchone()[0] == 2
        assert connection.execute("SELECT colour FROM chats").fetchall() == [(None,)]
    copy = path.with_name("chats.version-1.sqlite")
    with closing(ChatFile(copy)) as file:
        assert file.chats() == [chat]


def test_a_newer_file_is_refused_and_stays_as_it_is(path: Path) -> None:
    with closing(connect(path)) as connection:
        connection.execute("PRAGMA user_version=9")
    with pytest.raises(StoreTooNew, match="newer version of Fallow"):
        ChatFile(path)


def test_only_the_owner_can_read_the_file(file: ChatFile, path: Path) -> None:
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_something_else_than_a_database_is_said_so(path: Path) -> None:
    path.write_bytes(b"something else, and long enough to be looked at" * 100)
    with pytest.raises(StoreUnusable, match="cannot be opened"):
        ChatFile(path)


def test_the_store_works_in_a_thread_of_its_own_in_order(path: Path) -> None:
    posted: queue.Queue[Callable[[], object]] = queue.Queue()
    troubles: list[StoreUnusable] = []
    store = Store(path, posted.put)
    store.start(troubles.append)
    chat = Chat(id=new_id(), title="first")
    heard: list[list[Chat]] = []
    store.do(lambda file: file.save_chat(chat))
    store.do(ChatFile.chats, heard.append)
    posted.get(timeout=PATIENCE_S)()
    assert heard == [[chat]]
    store.do(lambda file: file.save_messages([Message(id="1", chat_id="none", parent_id=None, role="user", text="")]))
    posted.get(timeout=PATIENCE_S)()
    assert "cannot be kept" in str(troubles[0])
    store.stop()
    with closing(ChatFile(path)) as file:
        assert file.chats() == [chat]


def test_a_store_that_cannot_be_opened_says_why_once_and_does_what_needs_no_chats(tmp_path: Path) -> None:
    posted: queue.Queue[Callable[[], object]] = queue.Queue()
    troubles: list[StoreUnusable] = []
    (tmp_path / "chats.sqlite").mkdir()
    store = Store(tmp_path / "chats.sqlite", posted.put)
    store.start(troubles.append)
    posted.get(timeout=PATIENCE_S)()
    assert "cannot be opened" in str(troubles[0])
    done: list[str] = []
    store.do(lambda _: done.append("with the file"))
    store.beside(lambda: done.append("beside it"))
    store.stop()
    assert done == ["beside it"]
    assert store._work.empty()
    assert posted.empty()


def spoil(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        assert connection.execute(statement).rowcount == 1


@pytest.mark.parametrize(
    ("statement", "left"),
    [
        ("UPDATE chats SET setup='{' WHERE title='bad'", (1, 1, 1)),
        ("UPDATE messages SET facts='[]' WHERE text='bad'", (2, 0, 1)),
        ("UPDATE messages SET attachments='3' WHERE text='bad'", (2, 0, 1)),
        ("""UPDATE presets SET sampling='{"top_p": "x"}' WHERE name='bad'""", (2, 1, 0)),
    ],
)
def test_what_cannot_be_read_is_left_out_and_said(statement: str, left: tuple[int, int, int], path: Path) -> None:
    with closing(ChatFile(path)) as file:
        add_chat(file, "good")
        bad, _ = add_chat(file, "bad", title="bad")
        file.save_preset(Preset(id="1", name="bad"))
    spoil(path, statement)
    posted: queue.Queue[Callable[[], object]] = queue.Queue()
    troubles: list[StoreUnusable] = []
    heard: list[tuple[int, int, int]] = []
    store = Store(path, posted.put)
    store.start(troubles.append)
    store.do(lambda file: (len(file.chats()), len(file.messages(bad.id)), len(file.presets())), heard.append)
    store.stop()
    while not posted.empty():
        posted.get()()
    assert heard == [left]
    assert "1 entry cannot be read" in str(troubles[0])
    assert len(troubles) == 1


def test_a_wish_that_breaks_is_said_and_the_others_go_on(path: Path, expected_logs: ExpectLogs) -> None:
    expected_logs("console.chat.store", "failed unexpectedly")
    posted: queue.Queue[Callable[[], object]] = queue.Queue()
    troubles: list[StoreUnusable] = []
    heard: list[list[Chat]] = []
    store = Store(path, posted.put)
    store.start(troubles.append)
    nothing: dict[str, str] = {}
    store.do(lambda _: nothing["at all"])
    store.do(ChatFile.chats, heard.append)
    store.stop()
    while not posted.empty():
        posted.get()()
    assert "unknown reason (KeyError)" in str(troubles[0])
    assert heard == [[]]


def test_queries_are_quoted() -> None:
    assert query_of('two "words"') == '"two"* """words"""*'


def test_a_title_is_the_first_words() -> None:
    assert title_of("  What\n is  this? ") == "What is this?"
    assert title_of("word " * 30) == "word " * 11 + "word…"
