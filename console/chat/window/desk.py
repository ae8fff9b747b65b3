"""What the window shows, kept in memory: the chats, the open one's messages, the answers that come.

Every change is made here first, told by a signal, and handed to the file: nobody waits for the disk.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from PySide6.QtCore import QObject, QTimer, Signal

from console.chat.account import Account
from console.chat.chatfile import ChatFile
from console.chat.errors import StoreUnusable
from console.chat.records import (
    Attachment,
    Chat,
    Folder,
    Message,
    Preset,
    Role,
    Setup,
    new_id,
    title_of,
)
from console.chat.tree import Tree
from console.chat.window.shelf import Shelf
from shard_export.library.counts import counted

DRAFT_MS = 500


class Desk(Shelf):
    """The state of the window. GUI thread. `start`, and `stop` at the end."""

    opened = Signal()
    """Another chat is open, or none; or its messages came."""
    branch_changed = Signal()
    """Other messages are on the open branch."""
    message_changed = Signal(object)
    """A Message of the open chat was replaced, with all of it but its streaming text."""
    files_changed = Signal()
    """Other files are beside the open chat's draft."""
    said = Signal(str, object)
    """A line about what was done, and a function that undoes it, or None."""
    trouble = Signal(str)
    """Something cannot be kept or read."""

    def __init__(self, folder: Path, account: Account | None = None, parent: QObject | None = None) -> None:
        super().__init__(folder, account, parent)
        self.is_loaded = False
        self.broken = ""
        """Why the chats could not be read."""
        self.open_id: str | None = None
        self.fresh_draft = ""
        self._trees: dict[str, Tree] = {}
        self._files: dict[str, list[Attachment]] = {}
        self._drafts = QTimer(self)
        self._drafts.setSingleShot(True)
        self._drafts.setInterval(DRAFT_MS)
        self._drafts.timeout.connect(self._save_open)

    def start(self) -> None:
        """Read what was kept."""
        self.bridge.start()
        self.store.start(self._store_failed)
        self.store.do(lambda file: (file.chats(), file.folders(), file.presets()), self._load)

    def stop(self) -> None:
        """Keep what is not kept yet. Waits for the disk."""
        if self._drafts.isActive():
            self._drafts.stop()
            self._save_open()
        self.store.stop()
        self.bridge.stop()

    # The open chat

    @property
    def chat(self) -> Chat | None:
        """The open chat; None: a new one that nothing was said in yet."""
        return self.chats.get(self.open_id or "")

    @property
    def setup(self) -> Setup:
        """What the open chat asks with."""
        return self.chat.setup if self.chat else self.fresh

    @property
    def draft(self) -> str:
        """What was typed in the open chat and not sent."""
        return self.chat.draft if self.chat else self.fresh_draft

    @property
    def files(self) -> list[Attachment]:
        """What was put beside the open chat's draft; kept until the program ends."""
        return self._files.get(self.open_id or "", [])

    @property
    def branch(self) -> list[Message]:
        """The messages in sight, the first one first."""
        return self.branch_of(self.open_id or "")

    @property
    def is_reading(self) -> bool:
        """Whether the open chat's messages are still to come from the disk."""
        return self.open_id is not None and self.open_id not in self._trees

    def tree(self, chat_id: str | None = None) -> Tree:
        """Return a chat's messages; empty while they are not read."""
        return self._trees.get(chat_id or self.open_id or "", Tree())

    def branch_of(self, chat_id: str) -> list[Message]:
        """Return the messages of a chat's branch."""
        chat = self.chats.get(chat_id)
        return self.tree(chat_id).path(chat.leaf_id) if chat else []

    def open(self, chat_id: str | None, message_id: str | None = None) -> None:
        """Open a chat, or a new one; with a message: on the branch it is on."""
        if self._drafts.isActive():
            self._drafts.stop()
            self._save_open()
        self.open_id = chat_id if chat_id in self.chats else None
        if self.open_id is None:
            self._begin_fresh()
        self.change_settings(chat_id=self.open_id or "")
        if self.open_id is not None and self.open_id not in self._trees:
            wanted = self.open_id
            self.store.do(lambda file: file.messages(wanted), lambda found: self._take(wanted, found, message_id))
        elif message_id is not None:
            self.show_branch(message_id)
        self.opened.emit()

    def show_branch(self, message_id: str) -> None:
        """Show the branch that goes through a message."""
        chat, tree = self.chat, self.tree()
        if chat is not None and message_id in tree and message_id not in {each.id for each in self.branch}:
            self.change_chat(chat.id, leaf_id=tree.leaf_of(message_id))
            self.branch_changed.emit()

    def change_setup(self, setup: Setup) -> None:
        """Let the open chat ask with something else."""
        if self.chat is None:
            self.fresh = setup
        else:
            self.change_chat(self.chat.id, quietly=True, setup=setup)
        if setup.model and setup.model != self.settings.model:
            self.change_settings(model=setup.model)
        self.models_changed.emit()

    def pick_model(self, name: str) -> None:
        """Let the open chat ask another model; one that nobody set up yet begins as that model's chats do."""
        self.change_setup(
            self._fresh_with(name) if self.chat is None else msgspec.structs.replace(self.setup, model=name)
        )

    def keep_draft(self, text: str) -> None:
        """Keep what is being typed."""
        if self.chat is None:
            self.fresh_draft = text
        elif text != self.chat.draft:
            self.chats[self.chat.id] = msgspec.structs.replace(self.chat, draft=text)
            self._drafts.start()

    def keep_files(self, files: list[Attachment]) -> None:
        """Keep what is put beside the draft."""
        self._files[self.open_id or ""] = files
        self.files_changed.emit()

    def add_files(self, chat_id: str | None, files: list[Attachment]) -> None:
        """Put more beside the draft of a chat, which need not be open any more."""
        self._files[chat_id or ""] = [*self._files.get(chat_id or "", []), *files]
        if chat_id == self.open_id:
            self.files_changed.emit()

    # Messages

    def add(
        self, role: Role, text: str, *, parent_id: str | None, attachments: Sequence[Attachment] = (), **values: Any
    ) -> Message:
        """Put a message behind another one of the open chat, and show its branch. Makes the chat if there is none."""
        chat = self.chat or self._make_chat(text)
        message = Message(
            id=new_id(), chat_id=chat.id, parent_id=parent_id, role=role, text=text, created_s=time.time(),
            attachments=list(attachments), **values,
        )  # fmt: skip
        self._trees.setdefault(chat.id, Tree()).put(message)
        self.store.do(lambda file: file.save_messages([message]))
        self.change_chat(chat.id, leaf_id=message.id, changed_s=time.time())
        self.branch_changed.emit()
        return message

    def replace(self, message: Message) -> None:
        """Replace a message by what it is now."""
        tree = self._trees.get(message.chat_id)
        if tree is None or message.id not in tree:
            return
        tree.put(message)
        self.store.do(lambda file: file.save_messages([message]))
        if message.chat_id == self.open_id:
            self.message_changed.emit(message)

    def delete_message(self, message_id: str) -> None:
        """Delete a message and all that follows it, until it is undone."""
        chat, tree = self.chat, self.tree()
        if chat is None or message_id not in tree:
            return
        leaf_before, parent_id = chat.leaf_id, tree[message_id].parent_id
        above = tree.path(parent_id)
        taken = tree.take_out(message_id)
        ids = [message.id for message in taken]
        self.store.do(lambda file: file.delete_messages(ids, time.time()))
        self.change_chat(chat.id, leaf_id=tree.leaf_of(parent_id))
        self.branch_changed.emit()

        def undo() -> None:
            # What it followed may have been taken away meanwhile, as an answer that failed and was asked for again.
            back = [*(message for message in above if message.id not in tree), *taken]
            for message in back:
                tree.put(message)
            self.store.do(lambda file: file.restore_messages([message.id for message in back]))
            self.change_chat(chat.id, leaf_id=leaf_before)
            self.branch_changed.emit()

        self.said.emit(counted(len(ids), "message was deleted.", "messages were deleted."), undo)

    def fork(self, message_id: str) -> None:
        """Make a new chat of all up to a message."""
        chat = self.chat
        if chat is None:
            return
        copied: list[Message] = []
        made = msgspec.structs.replace(
            chat, id=new_id(), pinned=False, draft="", created_s=time.time(), changed_s=time.time()
        )
        for message in self.tree().path(message_id):
            parent_id = copied[-1].id if copied else None
            copied.append(msgspec.structs.replace(message, id=new_id(), chat_id=made.id, parent_id=parent_id))
        self.take_in(msgspec.structs.replace(made, leaf_id=copied[-1].id if copied else None), copied)

    def take_in(self, chat: Chat, messages: list[Message]) -> None:
        """Add a whole chat and open it; one that does not say when it changed last did so now."""
        if not chat.changed_s:
            chat = msgspec.structs.replace(chat, changed_s=time.time())
        self.chats[chat.id] = chat
        self._trees[chat.id] = Tree(messages)
        self.store.do(lambda file: file.save_chat(chat))
        self.store.do(lambda file: file.save_messages(messages))
        self.chats_changed.emit()
        self.open(chat.id)

    # The list of chats

    def delete_chat(self, chat_id: str) -> None:
        """Delete a chat, until it is undone."""
        chat = self.chats.pop(chat_id)
        self.store.do(lambda file: file.delete_chat(chat_id, time.time()))
        self.chats_changed.emit()
        if self.open_id == chat_id:
            self._drafts.stop()
            self.open(None)

        def undo() -> None:
            is_there = any(folder.id == chat.folder_id for folder in self.folders)
            self.chats[chat_id] = chat if is_there else msgspec.structs.replace(chat, folder_id=None)
            self.store.do(lambda file: file.restore_chat(chat_id))
            self.chats_changed.emit()
            self.open(chat_id)

        self.said.emit(f"“{chat.title or 'New chat'}” was deleted.", undo)

    def erase(self) -> None:
        """Remove every chat for good."""
        self.chats, self.folders = {}, []
        self._trees.clear()
        self._files.clear()
        self.store.do(ChatFile.erase)
        self.chats_changed.emit()
        self.open(None)

    # Inside

    def _load(self, found: tuple[list[Chat], list[Folder], list[Preset]]) -> None:
        chats, folders, self.presets = found
        # Whoever was quicker than the disk has chats and folders already, and looks at one of them.
        self.chats = {**{chat.id: chat for chat in chats}, **self.chats}
        self.folders = sorted([*folders, *self.folders], key=lambda each: each.name.casefold())
        self.is_loaded = True
        self.chats_changed.emit()
        self.presets_changed.emit()
        untouched = self.fresh == Setup(self.fresh.model)
        if self.open_id is None and untouched and not self.fresh_draft:
            self.open(self.settings.chat_id or None)
            return
        if untouched:
            self._begin_fresh()
        self.opened.emit()

    def _take(self, chat_id: str, messages: list[Message], message_id: str | None) -> None:
        if chat_id in self._trees:
            return
        tree = self._trees[chat_id] = Tree(messages)
        chat = self.chats.get(chat_id)
        if chat is not None and (chat.leaf_id or "") not in tree:
            self.chats[chat_id] = msgspec.structs.replace(chat, leaf_id=tree.leaf_of(None))
        if chat_id == self.open_id:
            if message_id is not None:
                self.show_branch(message_id)
            self.opened.emit()

    def _make_chat(self, text: str) -> Chat:
        now_s = time.time()
        chat = Chat(id=new_id(), title=title_of(text), setup=self.fresh, created_s=now_s, changed_s=now_s)
        self.chats[chat.id] = chat
        self._trees[chat.id] = Tree()
        self.store.do(lambda file: file.save_chat(chat))
        self.open_id, self.fresh_draft = chat.id, ""
        self.change_settings(chat_id=chat.id)
        self.chats_changed.emit()
        return chat

    def _save_open(self) -> None:
        if self.chat is not None:
            self.change_chat(self.chat.id, quietly=True)

    def _store_failed(self, error: StoreUnusable) -> None:
        if not self.is_loaded:
            self.broken = str(error)
            self.opened.emit()
        self.trouble.emit(str(error))
