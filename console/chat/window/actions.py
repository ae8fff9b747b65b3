"""Everything the window can do, in one registry: menus, buttons, the shortcut list and its editor come from here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from PySide6.QtCore import QObject, Qt
from PySide6.QtGui import QAction, QKeySequence
from PySide6.QtWidgets import QWidget

from agent.look import palettes
from agent.look.icons import drawn


class Spec(NamedTuple):
    """An action: its name in settings, what people read, its keys, its icon, and the group in the list of shortcuts."""

    name: str
    text: str
    keys: str
    group: str
    icon: str = ""


SPECS = (
    Spec("new", "New chat", "Ctrl+N", "Chats", "new"),
    Spec("search", "Search all chats", "Ctrl+K", "Chats"),
    Spec("rename", "Rename chat", "F2", "Chats"),
    Spec("pin", "Pin or unpin chat", "Ctrl+Shift+P", "Chats"),
    Spec("delete_chat", "Delete chat", "Ctrl+Shift+Del", "Chats"),
    Spec("undo", "Undo deleting", "Alt+Z", "Chats"),
    Spec("previous_chat", "Previous chat", "Ctrl+PgUp", "Chats"),
    Spec("next_chat", "Next chat", "Ctrl+PgDown", "Chats"),
    Spec("sidebar", "Show or hide the list of chats", "Ctrl+B", "Chats", "sidebar"),
    Spec("find", "Find in this chat", "Ctrl+F", "This chat", "search"),
    Spec("setup", "System prompt and sampling", "Ctrl+Shift+S", "This chat", "tune"),
    Spec("copy_all", "Copy chat as Markdown", "Ctrl+Shift+C", "This chat"),
    Spec("export", "Export chat", "Ctrl+E", "This chat"),
    Spec("import", "Import chat", "", "Chats"),
    Spec("menu", "Chat menu", "Alt+M", "This chat", "more"),
    Spec("compose", "Go to the text field", "Ctrl+L", "This chat"),
    Spec("attach", "Attach text files", "Ctrl+Shift+A", "This chat", "attach"),
    Spec("send", "Send", "", "This chat", "send"),
    Spec("stop", "Stop the answer", "Esc", "This chat", "stop"),
    Spec("latest", "Jump to the latest", "Ctrl+End", "This chat", "down"),
    Spec("previous_message", "Previous message", "Alt+Up", "Messages"),
    Spec("next_message", "Next message", "Alt+Down", "Messages"),
    Spec("copy_message", "Copy message", "Alt+C", "Messages", "copy"),
    Spec("edit_message", "Edit message", "Alt+E", "Messages", "edit"),
    Spec("regenerate", "Answer again", "Alt+R", "Messages", "again"),
    Spec("fork", "New chat from here", "Alt+N", "Messages", "fork"),
    Spec("delete_message", "Delete message and what follows", "Alt+Del", "Messages", "delete"),
    Spec("previous_branch", "Previous version", "Alt+Left", "Messages", "left"),
    Spec("next_branch", "Next version", "Alt+Right", "Messages", "right"),
    Spec("bigger", "Bigger text", "Ctrl++", "Window"),
    Spec("smaller", "Smaller text", "Ctrl+-", "Window"),
    Spec("options", "Settings", "Ctrl+,", "Window", "settings"),
    Spec("sign_in", "Sign in…", "", "Window"),
    Spec("shortcuts", "Keyboard shortcuts", "F1", "Window"),
    Spec("quit", "Quit", "Ctrl+Q", "Window"),
)


class Actions(QObject):
    """The registry. An action is reached by its name: `actions["new"]`."""

    def __init__(self, owner: QWidget, changed: Mapping[str, str]) -> None:
        super().__init__(owner)
        self._owner = owner
        self._actions: dict[str, QAction] = {}
        for spec in SPECS:
            action = QAction(spec.text, owner)
            action.setObjectName(spec.name)
            action.setShortcutContext(Qt.ShortcutContext.WindowShortcut)
            self._actions[spec.name] = action
            owner.addAction(action)
        self.set_keys(changed)
        self.draw_icons()

    def __getitem__(self, name: str) -> QAction:
        return self._actions[name]

    def set_keys(self, changed: Mapping[str, str]) -> None:
        """Give every action its keys: its own, or those that were chosen instead (empty: none)."""
        for spec in SPECS:
            action = self._actions[spec.name]
            action.setShortcut(QKeySequence(changed.get(spec.name, spec.keys)))
            keys = action.shortcut().toString(QKeySequence.SequenceFormat.NativeText)
            action.setToolTip(f"{spec.text} ({keys})" if keys else spec.text)

    def draw_icons(self) -> None:
        """Draw the icons in the colour of the text, as after a change of the theme."""
        colour = palettes.COLOURS[palettes.scheme_of(self._owner.palette())].text
        side = round(self._owner.fontMetrics().height() * 1.2)
        for spec in SPECS:
            if spec.icon:
                self._actions[spec.name].setIcon(drawn(spec.icon, side, colour, self._owner.devicePixelRatioF()))


def clashes(changed: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the keys that several actions would have, each with the actions' texts."""
    by_keys: dict[str, list[str]] = {}
    for spec in SPECS:
        keys = QKeySequence(changed.get(spec.name, spec.keys)).toString()
        if keys:
            by_keys.setdefault(keys, []).append(spec.text)
    return {keys: texts for keys, texts in by_keys.items() if len(texts) > 1}
