"""Two load tests side by side: what changed, by how much, and what was not the same to begin with. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from console.bench.figures import Figures
from console.bench.load import noted
from console.bench.records import Run

LESS_IS_BETTER = -1
MORE_IS_BETTER = 1

_FIGURES: Sequence[tuple[str, int, Callable[[Figures], float | None]]] = (
    ("tokens/s of all", MORE_IS_BETTER, lambda one: one.tokens_per_s),
    ("tokens/s of a user", MORE_IS_BETTER, lambda one: one.tokens_per_s_user),
    ("first token p50 (ms)", LESS_IS_BETTER, lambda one: one.first_token_ms.p50),
    ("first token p95 (ms)", LESS_IS_BETTER, lambda one: one.first_token_ms.p95),
    ("between tokens p50 (ms)", LESS_IS_BETTER, lambda one: one.inter_token_ms.p50),
    ("between tokens p95 (ms)", LESS_IS_BETTER, lambda one: one.inter_token_ms.p95),
    ("failed", LESS_IS_BETTER, lambda one: float(one.failed)),
)


class Change(msgspec.Struct, frozen=True):
    """One figure of so many users, before and now. `better_percent` is below 0 for what became worse; None: unknown."""

    users: int
    name: str
    before: float | None
    now: float | None
    better_percent: float | None


def changes(before: Run, now: Run) -> list[Change]:
    """Compare the figures of as many users, in order."""
    known = {level.users: level for level in before.levels}
    return [
        Change(level.users, name, then := read(known[level.users]), today := read(level), _better(then, today, sign))
        for level in now.levels
        if level.users in known
        for name, sign, read in _FIGURES
    ]


def _better(before: float | None, now: float | None, sign: int) -> float | None:
    if not before or now is None:
        return None
    return round(sign * 100 * (now - before) / before, 1)


def differences(before: Run, now: Run) -> list[str]:
    """Say what was not the same, so that nobody takes it for the model's doing. Sentences."""
    found = []
    if before.load.model != now.load.model:
        found.append(f"The model was {before.load.model}, and is {now.load.model} now.")
    then, today = noted(before.load), noted(now.load)
    found += [f"{_WORDS[name]}: {then[name]} before, {today[name]} now." for name in then if then[name] != today[name]]
    if before.served != now.served:
        found.append(f"It was served as {'; '.join(before.served) or 'nobody knows'}.")
        found.append(f"Now it is served as {'; '.join(now.served) or 'nobody knows'}.")
    if before.version != now.version:
        found.append(f"The console's version was {before.version}, and is {now.version} now.")
    found += [f"The run {run.name} was interrupted." for run in (before, now) if run.interrupted]
    return found


_WORDS = {
    "duration_s": "Seconds of each level",
    "requests": "Requests of each user",
    "mix": "Prompts",
    "max_tokens": "Tokens of an answer",
    "natural": "Answers end by themselves",
}
