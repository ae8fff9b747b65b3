"""Which prompt a load test's next request has: the texts of console.bench in turn, or those of a file. Pure.

Texts of ours begin with the run's own mark and their number, so that no cache has seen one before. Those of a file are
asked as they are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from console.bench.texts import EDIT_PROMPTS, MORE_PROMPTS, PROMPTS, shortened, words_by_chance
from console.errors import UsageWrong
from shard_export.library.counts import counted

KINDS = ("short", "long", "edit")
DEFAULT_SHARES = {"short": 2, "long": 1, "edit": 1}
FROM_FILE = "file"
LONG_TOKENS = 1500
LEAST_ROOM = 64
"""Tokens; a context with less beside the answer holds no prompt of ours."""
MOST_SHARE = 100
MARK_TOKENS = 24
"""More than a mark and a chat template take."""
MOST_FILE_BYTES = 64 << 20
MOST_LISTED = 100_000


class Prompt(msgspec.Struct, frozen=True):
    """One request: its conversation, and how long its answer may be (0: as long as the others)."""

    kind: str
    messages: list[dict[str, Any]]
    max_tokens: int = 0


class _Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    prompt: str = ""
    messages: list[dict[str, Any]] = []
    max_tokens: int = 0


class Mix:
    """Prompts by number; `said` names them, the same for the same prompts. `kinds` are in turn."""

    def __init__(
        self, said: str, kinds: Sequence[str], prompts: Mapping[str, Sequence[Prompt]], mark: str = ""
    ) -> None:
        """`mark` begins the first message of every prompt; empty: they are asked as they are."""
        self.said = said
        self._kinds = list(kinds)
        self._prompts = prompts
        self._mark = mark

    def prompt(self, number: int) -> Prompt:
        """Return a prompt: numbers count from 0, and each is another text where there is a mark."""
        kind = self._kinds[number % len(self._kinds)]
        texts = self._prompts[kind]
        chosen = texts[number // len(self._kinds) % len(texts)]
        if not self._mark:
            return chosen
        first, *others = chosen.messages
        marked = {**first, "content": f"({self._mark}-{number}) {first['content']}"}
        return msgspec.structs.replace(chosen, messages=[marked, *others])


def parse_shares(text: str) -> dict[str, int]:
    """Read `short=2,long=1`; a kind alone counts once. Raises UsageWrong."""
    shares: dict[str, int] = {}
    for part in text.split(","):
        kind, sign, number = part.strip().partition("=")
        share = int(number) if number.isdecimal() and len(number) < 4 else 0
        if not sign:
            share = 1
        if kind not in KINDS or kind in shares or not 1 <= share <= MOST_SHARE:
            raise UsageWrong(f"{part.strip()[:40]!r} is no part of a mix; write short=2,long=1,edit=1, or some of it.")
        shares[kind] = share
    return shares


def built_in(
    shares: Mapping[str, int], *, context_tokens: int, answer_tokens: int, count: Callable[[str], int], mark: str
) -> Mix:
    """Return our own texts, cut to what a context holds beside the answer. `count` says what a text takes in tokens.

    Raises UsageWrong for a context that is too short for that.
    """
    room = context_tokens - answer_tokens - MARK_TOKENS
    if room < LEAST_ROOM:
        raise UsageWrong(
            f"The model's context of {context_tokens} tokens holds no prompt beside an answer of {answer_tokens}; "
            "choose a smaller --max-tokens."
        )
    texts = {kind: _texts(kind, room, count) for kind in shares}
    prompts = {kind: [_asking(kind, text) for text in texts[kind]] for kind in shares}
    said = ",".join(f"{kind}={share}" for kind, share in shares.items())
    return Mix(said, [kind for kind, share in shares.items() for _ in range(share)], prompts, mark)


def _texts(kind: str, room: int, count: Callable[[str], int]) -> list[str]:
    if kind == "short":
        return [_cut(text, room, count) for text in PROMPTS + MORE_PROMPTS]
    if kind == "edit":
        return [_cut(text, room, count) for text in EDIT_PROMPTS]
    tokens = min(LONG_TOKENS, room)
    return [shortened(words_by_chance(tokens, seed=0), tokens, count)]


def _cut(text: str, room: int, count: Callable[[str], int]) -> str:
    # Every text of these has more bytes than tokens, so most are known to fit without being counted.
    return text if len(text.encode()) <= room or count(text) <= room else shortened(text.split(), room, count)


def _asking(kind: str, text: str) -> Prompt:
    return Prompt(kind, [{"role": "user", "content": text}])


def listed(data: bytes) -> Mix:
    """Read a file of prompts, one a line: JSON text, or an object with `prompt` or `messages`, perhaps `max_tokens`.

    Raises UsageWrong, which names the line.
    """
    decoder = msgspec.json.Decoder(str | _Line)
    prompts: list[Prompt] = []
    for number, line in enumerate(data.splitlines(), 1):
        if not line.strip():
            continue
        if len(prompts) == MOST_LISTED:
            raise UsageWrong(f"The file has more than {MOST_LISTED} prompts; leave some out.")
        try:
            read = decoder.decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            read = _Line()
        said = _Line(read) if isinstance(read, str) else read
        if bool(said.prompt) == bool(said.messages) or said.max_tokens < 0:
            message = f'Line {number} of the file is no prompt; write "TEXT", {{"prompt": ...}} or {{"messages": ...}}.'
            raise UsageWrong(message)
        messages = said.messages or [{"role": "user", "content": said.prompt}]
        prompts.append(Prompt(FROM_FILE, messages, said.max_tokens))
    if not prompts:
        raise UsageWrong("The file has no prompts; write one a line.")
    # The texts themselves are somebody's: only a hash of them is kept, to know them again.
    said_of = f"file of {counted(len(prompts), 'prompt')} ({hashlib.sha256(data).hexdigest()[:8]})"
    return Mix(said_of, [FROM_FILE], {FROM_FILE: prompts})
