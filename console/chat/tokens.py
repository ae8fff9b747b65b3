"""How much of the context is used: counted by the server for what it answered, estimated for the rest. No I/O."""

from __future__ import annotations

from collections.abc import Sequence

from console.chat.records import Message, Setup

CHARACTERS_PER_TOKEN = 4.0
"""Of English text with common vocabularies; the counts of earlier answers correct it."""
MESSAGE_TOKENS = 4
"""What a template puts around a message."""


def estimate(text: str) -> int:
    """Estimate how many tokens a text has."""
    return _tokens(len(text), CHARACTERS_PER_TOKEN)


def used(setup: Setup, path: Sequence[Message], draft: int = 0) -> tuple[int, bool]:
    """Return the tokens that the next question has, and whether that is partly an estimate.

    `draft` is how many characters were typed and attached. The last answer that was counted says exactly how many
    tokens there were up to it; what follows is estimated.
    """
    counted, rest = 0, list(path)
    per_token = CHARACTERS_PER_TOKEN
    for place in range(len(path) - 1, -1, -1):
        facts = path[place].facts
        if facts.prompt_tokens and facts.completion_tokens:
            counted, rest = facts.prompt_tokens + facts.completion_tokens, list(path[place + 1 :])
            per_token = _learned(setup, path[:place], facts.prompt_tokens)
            break
    else:
        counted = estimate(setup.system)
    tokens = counted + sum(MESSAGE_TOKENS + _tokens(message.size(), per_token) for message in rest)
    if draft:
        tokens += MESSAGE_TOKENS + _tokens(draft, per_token)
    return tokens, bool(rest or draft or not counted)


def short_count(tokens: int) -> str:
    """Say a number of tokens in few letters: 950, 1.2k, 32k."""
    if tokens < 1000:
        return str(tokens)
    return f"{tokens / 1000:.1f}k" if tokens < 10_000 else f"{tokens / 1000:.0f}k"


def _tokens(characters: int, characters_per_token: float) -> int:
    return round(characters / characters_per_token + 0.49) if characters else 0


def _learned(setup: Setup, before: Sequence[Message], prompt_tokens: int) -> float:
    characters = len(setup.system) + sum(message.size() for message in before)
    tokens = max(1, prompt_tokens - MESSAGE_TOKENS * len(before))
    return min(8.0, max(1.0, characters / tokens)) if characters else CHARACTERS_PER_TOKEN
