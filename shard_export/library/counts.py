"""How many of something there are, as people say it. Used by all programs. Pure."""

from __future__ import annotations


def counted(number: int, one: str, many: str = "", *, shown: str = "") -> str:
    """Return "1 file", "2 files", "0 files".

    `many` is what follows any number but 1, where it is not `one` with an s: an irregular noun, or one with its verb.
    `shown` is how the number is written, if not plainly.
    """
    return f"{shown or number} {one if number == 1 else many or f'{one}s'}"
