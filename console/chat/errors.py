"""Errors of the chat.

ChatError
 ├─ StoreUnusable       the file with the chats cannot be opened or written
 │   └─ StoreTooNew     a newer version of the program wrote it
 ├─ FileUnusable        a file that was chosen cannot be read, written, or go along
 ├─ ImportRefused       a file is no chat that can be read
 ├─ LinkRefused         a text is no chat link, or the server is not the one the link means
 ├─ SecretsUnusable     the place for the key does not give it out or take it
 └─ AnswerFailed        there is no whole answer: `kind` says why, for the card that is shown
"""

from __future__ import annotations

from typing import Literal

Kind = Literal["unreachable", "key", "busy", "model", "refused", "incomplete", "broken"]
"""Why there is no whole answer: nobody there, the key is not taken, too much asked (wait), the model is gone, the
question cannot be answered like this, the stream broke off, an error in the stream."""


class ChatError(Exception):
    """Base: `str(error)` is one sentence saying what happened and what to do."""


class StoreUnusable(ChatError):
    """The file with the chats cannot be opened or written."""


class StoreTooNew(StoreUnusable):
    """A newer version of the program wrote the file."""


class FileUnusable(ChatError):
    """A file that was chosen cannot be read, written, or go along."""


class ImportRefused(ChatError):
    """A file is no chat that can be read."""


class LinkRefused(ChatError):
    """A text is no chat link, or the server is not the one the link means."""


class SecretsUnusable(ChatError):
    """The place for the key does not give it out or take it."""


class AnswerFailed(ChatError):
    """There is no whole answer. `retry_after_s` says when to ask again, if the server said so."""

    def __init__(self, message: str, *, kind: Kind, code: str = "", retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.kind: Kind = kind
        self.code = code
        self.retry_after_s = retry_after_s
