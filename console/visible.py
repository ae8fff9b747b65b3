"""Texts that somebody else chose, shown so that they cannot pass for something else. No I/O."""

from __future__ import annotations

from typing import Any


def visible(text: str) -> str:
    """Return a text as one line that hides nothing: what is no letter, mark, sign or plain space is a � in it.

    A PC names itself. A name with a line break could show a second line, with the code of another PC; one with
    letters that turn the direction of what follows, or with those of a terminal, could do as much.
    """
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)


def all_visible(said: dict[str, Any]) -> dict[str, Any]:
    """Return what a PC says of itself (plain values by name) with every text, and those in lists, made visible."""
    return {name: _visible_value(value) for name, value in said.items()}


def _visible_value(value: Any) -> Any:
    if isinstance(value, str):
        return visible(value)
    return [_visible_value(item) for item in value] if isinstance(value, list) else value
