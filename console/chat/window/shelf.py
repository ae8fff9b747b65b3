"""What is kept and known whichever chat is open: chats, folders, presets, settings, models. GUI thread."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from PySide6.QtCore import QObject, Signal

from console.chat.account import Account
from console.chat.chatfile import ChatFile
from console.chat.client import Model
from console.chat.errors import AnswerFailed
from console.chat.records import Chat, Folder, Hit, Preset, Setup, default_preset
from console.chat.settings import ChatSettings, read_settings, write_settings
from console.chat.store import Store
from console.chat.window.bridge import ChatBridge


class Shelf(QObject):
    """Every change is made here first, told by a signal, and handed to the file."""

    chats_changed = Signal()
    """The list of chats or folders."""
    models_changed = Signal()
    presets_changed = Signal()
    settings_changed = Signal()
    connection_changed = Signal()

    def __init__(self, folder: Path, account: Account | None = None, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.settings_path = folder / "settings.json"
        self.settings = read_settings(self.settings_path)
        self.bridge = ChatBridge(account or Account(folder), self)
        self.store = Store(folder / "chats.sqlite", self.bridge.post)
        self.chats: dict[str, Chat] = {}
        self.folders: list[Folder] = []
        self.presets: list[Preset] = []
        self.models: list[Model] = []
        self.problem: AnswerFailed | None = None
        """Why the models could not be listed, while they cannot."""
        self.fresh = Setup()
        """What the next new chat asks with."""

    # The list of chats

    def change_chat(self, chat_id: str, *, quietly: bool = False, **changes: Any) -> Chat:
        """Change what is known of a chat, here and in the file."""
        chat = msgspec.structs.replace(self.chats[chat_id], **changes)
        self.chats[chat_id] = chat
        self.store.do(lambda file: file.save_chat(chat))
        if not quietly:
            self.chats_changed.emit()
        return chat

    def save_folder(self, folder: Folder) -> None:
        """Make or rename a folder."""
        others = [each for each in self.folders if each.id != folder.id]
        self.folders = sorted([*others, folder], key=lambda each: each.name.casefold())
        self.store.do(lambda file: file.save_folder(folder))
        self.chats_changed.emit()

    def delete_folder(self, folder_id: str) -> None:
        """Remove a folder; its chats stay."""
        self.folders = [each for each in self.folders if each.id != folder_id]
        for chat in list(self.chats.values()):
            if chat.folder_id == folder_id:
                self.change_chat(chat.id, quietly=True, folder_id=None)
        self.store.do(lambda file: file.delete_folder(folder_id))
        self.chats_changed.emit()

    def search(self, words: str, then: Callable[[list[Hit]], object]) -> None:
        """Search all chats."""
        self.store.do(lambda file: file.search(words), then)

    # Presets and settings

    def save_preset(self, preset: Preset) -> None:
        """Make or change a preset."""
        self.store.do(lambda file: file.save_preset(preset))
        self._read_presets()

    def delete_preset(self, preset_id: str) -> None:
        """Remove a preset."""
        self.store.do(lambda file: file.delete_preset(preset_id))
        self._read_presets()

    def change_settings(self, **changes: Any) -> None:
        """Change settings and keep them."""
        changed: ChatSettings = msgspec.structs.replace(self.settings, **changes)
        if changed != self.settings:
            self.settings = changed
            self.store.beside(lambda: write_settings(self.settings_path, changed))
            self.settings_changed.emit()

    # The server

    def ask_models(self) -> None:
        """Ask which models there are."""
        self.bridge.models(self.take_models, self._models_failed)

    def take_models(self, models: list[Model]) -> None:
        """Show other models; a chat that has none yet gets the one that was used last, or the first."""
        self.models, self.problem = models, None
        names = [model.id for model in models]
        if self.fresh.model not in names:
            last = self.settings.model
            self.fresh = self._fresh_with(last if last in names else (names[0] if names else ""))
        self.models_changed.emit()
        self.connection_changed.emit()

    def model(self, name: str) -> Model | None:
        """Return what is known of a model."""
        return next((model for model in self.models if model.id == name), None)

    # Inside

    def _models_failed(self, error: AnswerFailed) -> None:
        self.problem = error
        self.connection_changed.emit()

    def _begin_fresh(self) -> None:
        self.fresh = self._beginning(self.fresh.model)

    def _fresh_with(self, model: str) -> Setup:
        as_begun = self.fresh == self._beginning(self.fresh.model)
        return self._beginning(model) if as_begun else msgspec.structs.replace(self.fresh, model=model)

    def _beginning(self, model: str) -> Setup:
        preset = default_preset(self.presets, model)
        return Setup(model) if preset is None else Setup(model, preset.system, preset.sampling)

    def _read_presets(self) -> None:
        def take(presets: list[Preset]) -> None:
            self.presets = presets
            self.presets_changed.emit()

        self.store.do(ChatFile.presets, take)
