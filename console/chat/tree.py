"""The messages of a chat as a tree: the branch that is shown, its forks, and what is edited where. No I/O."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from console.chat.records import Message


@dataclass(frozen=True, slots=True)
class Fork:
    """Where a message stands among those with the same parent: `place` of `count`, counted from 1."""

    place: int
    count: int


class Tree:
    """All messages of one chat. Messages are only added, replaced and taken out, and each comes after its parent."""

    def __init__(self, messages: Iterable[Message] = ()) -> None:
        self._messages: dict[str, Message] = {}
        self._children: dict[str | None, list[str]] = {}
        for message in messages:
            self.put(message)

    def __len__(self) -> int:
        return len(self._messages)

    def __contains__(self, message_id: str) -> bool:
        return message_id in self._messages

    def __getitem__(self, message_id: str) -> Message:
        return self._messages[message_id]

    def all(self) -> list[Message]:
        """List all messages of all branches, parents first."""
        return list(self._messages.values())

    def put(self, message: Message) -> None:
        """Add a message, or replace the one with its id. One whose parent is unknown begins a branch of its own."""
        if message.id not in self._messages:
            parent = message.parent_id if message.parent_id in self._messages else None
            self._children.setdefault(parent, []).append(message.id)
        self._messages[message.id] = message

    def take_out(self, message_id: str) -> list[Message]:
        """Remove a message and all that follows it; returns them, parents first."""
        taken = self.below(message_id)
        for message in taken:
            del self._messages[message.id]
            self._children.pop(message.id, None)
        for children in self._children.values():
            if message_id in children:
                children.remove(message_id)
        return taken

    def below(self, message_id: str) -> list[Message]:
        """List a message and all that follows it on any branch, parents first."""
        found, todo = [], [message_id]
        while todo:
            each = todo.pop()
            found.append(self._messages[each])
            todo += reversed(self._children.get(each, []))
        return found

    def path(self, leaf_id: str | None) -> list[Message]:
        """List the branch that ends at a message, the first message first; empty for an unknown one."""
        found: list[Message] = []
        at = leaf_id
        while at is not None and (message := self._messages.get(at)) is not None:
            found.append(message)
            at = message.parent_id
        return found[::-1]

    def leaf_of(self, message_id: str | None) -> str | None:
        """Return the end of the newest branch through a message; None: through any."""
        at = message_id if message_id in self._messages else None
        while children := self._children.get(at):
            at = children[-1]
        return at

    def fork(self, message_id: str) -> Fork:
        """Say where a message stands among its alternatives."""
        same = self._same(message_id)
        return Fork(same.index(message_id) + 1, len(same))

    def other(self, message_id: str, step: int) -> str:
        """Return the alternative so many places on, as far as there are any."""
        same = self._same(message_id)
        return same[max(0, min(len(same) - 1, same.index(message_id) + step))]

    def _same(self, message_id: str) -> list[str]:
        parent = self._messages[message_id].parent_id
        return self._children[parent if parent in self._messages else None]
