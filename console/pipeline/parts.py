"""The parts of an answer's time as they are told, and the largest of them in words. Plain data; no I/O, no clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

WORDS = {
    "queue_ms": "waiting for a place",
    "prompt_ms": "reading the prompt",
    "waiting_ms": "waiting between steps",
    "compute_ms": "inference",
    "turn_ms": "waiting for other steps at a PC",
    "link_ms": "the way between PCs",
    "sampling_ms": "choosing tokens",
    "guessing_ms": "guesses that were wrong",
    "recovery_ms": "others taking over from a PC that was lost",
    "other_ms": "making text of tokens",
}
"""What each part is called; every field of `TimeParts` has its words."""


class TimeParts(msgspec.Struct, frozen=True):
    """Milliseconds that add up to the whole time of an answer.

    `queue_ms`: until it had its place in the caches (again, if it lost it). `prompt_ms`: from there to its first
    token. Then, of every step it was in: `waiting_ms` before the step left (for others to share it, or for guesses),
    `compute_ms` inference, `turn_ms` behind other steps at a stage, `link_ms` on the way, `sampling_ms` choosing
    tokens, `guessing_ms` the inference of guesses that were wrong. `recovery_ms`: from the loss of a PC to the next
    token. `other_ms`: after the last token.
    """

    queue_ms: float = 0.0
    prompt_ms: float = 0.0
    waiting_ms: float = 0.0
    compute_ms: float = 0.0
    turn_ms: float = 0.0
    link_ms: float = 0.0
    sampling_ms: float = 0.0
    guessing_ms: float = 0.0
    recovery_ms: float = 0.0
    other_ms: float = 0.0

    @property
    def total_ms(self) -> float:
        """All of it."""
        return float(sum(msgspec.structs.astuple(self)))


class StageTime(msgspec.Struct, frozen=True):
    """One PC's share of an answer, in milliseconds, as above: the steps after its prompt."""

    pc: str
    compute_ms: float
    turn_ms: float
    link_ms: float


def slowest(parts: TimeParts, stages: Sequence[StageTime] = ()) -> str:
    """Say in a sentence what took longest; with `stages` also on which PC. Empty for no time at all."""
    total_ms = parts.total_ms
    if total_ms <= 0:
        return ""
    name = max(WORDS, key=lambda part: float(getattr(parts, part)))
    took_ms: float = getattr(parts, name)
    share = took_ms / total_ms
    how_much = "Most" if share > 0.5 else "The largest part"
    return f"{how_much} of {_time(total_ms)} was {WORDS[name]}: {_time(took_ms)} ({share:.0%}){_where(name, stages)}."


_AT_STAGES: dict[str, Callable[[StageTime], float]] = {
    "compute_ms": lambda stage: stage.compute_ms,
    "turn_ms": lambda stage: stage.turn_ms,
    "link_ms": lambda stage: stage.link_ms,
}


def _where(name: str, stages: Sequence[StageTime]) -> str:
    """Name the PC that has the most of a part."""
    of = _AT_STAGES.get(name)
    if of is None or not stages:
        return ""
    most = max(stages, key=of)
    if len(stages) == 1:
        return f", at {most.pc}"
    return f", {_time(of(most))} of it at {most.pc}"


def _time(took_ms: float) -> str:
    return f"{took_ms:.0f} ms" if took_ms < 999.5 else f"{took_ms / 1000:.1f} s"
