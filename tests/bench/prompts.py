"""What the benchmarks ask: the questions and edits of console.bench, distinct, and numbered where they are asked again.

So no cache can help.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from console.bench.texts import EDIT_PROMPTS, MORE_PROMPTS, PROMPTS


def questions(count: int, offset: int = 0) -> list[str]:
    """Return `count` distinct questions; another `offset` begins elsewhere."""
    known = PROMPTS + MORE_PROMPTS
    return [known[(offset + index) % len(known)] for index in range(count)]


def edits(count: int, offset: int = 0) -> list[str]:
    """Return `count` distinct texts to be corrected; the answer repeats nearly all of it."""
    return [EDIT_PROMPTS[(offset + index) % len(EDIT_PROMPTS)] for index in range(count)]


def numbered(prompts: Sequence[str], numbers: Iterator[int]) -> list[str]:
    """Begin every prompt with the next number, so that no cache has seen one before, whoever asked it in this run."""
    return [f"({next(numbers)}) {prompt}" for prompt in prompts]
