"""What the chat keeps, as plain values. Whoever makes a value makes its id, so nobody waits for the disk to get one."""

from __future__ import annotations

import re
import secrets
from typing import Annotated, Literal

import msgspec

Role = Literal["user", "assistant"]
State = Literal["whole", "open", "stopped", "failed"]
"""How complete a message is: `open` while it comes; an answer that is found open at the start was cut off."""
ID_BYTES = 8


def new_id() -> str:
    """Make an id that nothing else has."""
    return secrets.token_hex(ID_BYTES)


class Sampling(msgspec.Struct, frozen=True, omit_defaults=True):
    """How an answer is drawn; None: as the server does it. `seed` makes answers repeatable."""

    temperature: Annotated[float, msgspec.Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    max_tokens: Annotated[int, msgspec.Meta(ge=1)] | None = None
    seed: int | None = None
    stop: list[str] = []

    def fields(self) -> dict[str, object]:
        """Return what a request says of it."""
        said: dict[str, object] = {
            "temperature": self.temperature,
            "top_p": self.top_p,
            "max_completion_tokens": self.max_tokens,
            "seed": self.seed,
            "stop": self.stop or None,
        }
        return {name: value for name, value in said.items() if value is not None}


class Attachment(msgspec.Struct, frozen=True):
    """A text file that goes along with a message."""

    name: str
    text: str


class Facts(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is known of an answer. Times are milliseconds; `pcs` are the PCs that computed it, in order.

    `drafted` tokens were guessed and `accepted` of them were right. `problem` says why it is not whole.
    """

    model: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    queue_ms: float = 0.0
    first_token_ms: float = 0.0
    total_ms: float = 0.0
    pcs: list[str] = []
    drafted: int = 0
    accepted: int = 0
    ending: str = ""
    problem: str = ""
    problem_kind: str = ""

    @property
    def tokens_per_second(self) -> float:
        """The speed after the first token; 0 when there is nothing to divide."""
        took_ms = self.total_ms - self.first_token_ms
        return 1000 * (self.completion_tokens - 1) / took_ms if took_ms > 0 and self.completion_tokens > 1 else 0.0

    @property
    def acceptance(self) -> float | None:
        """The share of guessed tokens that were right; None when none were guessed."""
        return self.accepted / self.drafted if self.drafted else None


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One message: what was said before it is `parent_id` (None: nothing). Several with one parent are branches."""

    id: str
    chat_id: str
    parent_id: str | None
    role: Role
    text: str
    state: State = "whole"
    created_s: float = 0.0
    attachments: list[Attachment] = []
    facts: Facts = Facts()

    def content(self) -> str:
        """Return what is sent: the text, and each file in a fence that is longer than any inside it."""
        parts = [self.text] if self.text else []
        for file in self.attachments:
            fence = "`" * max(3, 1 + max(map(len, re.findall("`+", file.text)), default=0))
            parts.append(f"{file.name}:\n{fence}\n{file.text}\n{fence}")
        return "\n\n".join(parts)

    def size(self) -> int:
        """Return about how many characters `content` has, without making it: for who asks at every key."""
        around = len(":\n```\n\n```\n\n")
        return len(self.text) + sum(len(file.name) + len(file.text) + around for file in self.attachments)


class Setup(msgspec.Struct, frozen=True):
    """What a chat asks with: its own copy, so that a changed preset changes no chat."""

    model: str = ""
    system: str = ""
    sampling: Sampling = Sampling()


class Chat(msgspec.Struct, frozen=True, kw_only=True):
    """A chat without its messages. `leaf_id` is the last message of the branch that is shown.

    `named` says that a person gave it its title; `draft` is what was typed and not sent.
    """

    id: str
    title: str = ""
    named: bool = False
    folder_id: str | None = None
    pinned: bool = False
    setup: Setup = Setup()
    leaf_id: str | None = None
    draft: str = ""
    created_s: float = 0.0
    changed_s: float = 0.0


class Folder(msgspec.Struct, frozen=True):
    """A folder of chats."""

    id: str
    name: str


class Preset(msgspec.Struct, frozen=True, kw_only=True):
    """A system prompt and sampling under a name. `model` names the one it is for; empty: all.

    New chats begin with the default one of their model, or else with the default one for all.
    """

    id: str
    name: str
    system: str = ""
    sampling: Sampling = Sampling()
    model: str = ""
    is_default: bool = False


class Hit(msgspec.Struct, frozen=True):
    """A message that a search found; `excerpt` has its words and some around them."""

    chat_id: str
    message_id: str
    excerpt: str


def default_preset(presets: list[Preset], model: str) -> Preset | None:
    """Return what a new chat with a model begins with; the one for this model wins over the one for all."""
    defaults = [preset for preset in presets if preset.is_default and preset.model in ("", model)]
    return max(defaults, key=lambda preset: preset.model, default=None)


def title_of(text: str, most: int = 60) -> str:
    """Make a title of the first words that were said."""
    words = " ".join(text.split())
    if len(words) <= most:
        return words
    cut = words[:most].rpartition(" ")[0] or words[:most]
    return f"{cut}…"
