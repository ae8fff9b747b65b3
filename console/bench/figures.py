"""What a load test's requests add up to: rates, waits, failures. Pure.

A request's tokens count where its pieces of text came: a piece of a whole answer stands for the answer's tokens by the
number of its pieces, a piece of one that was cut for as many as pieces of whole answers had. Percentiles are values
that occurred (nearest rank).
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import msgspec

OTHER = "error"
"""The code of a failure that had none."""


@dataclass(slots=True)
class Asked:
    """One request by its client's clock (s), filled in while it runs. Without `ended_s` it was cut.

    `pieces_s` is when each piece of text came, `timings` what the server said beside it, in ms.
    """

    kind: str
    asked_s: float
    pieces_s: list[float] = field(default_factory=list)
    ended_s: float | None = None
    prompt_tokens: int = 0
    cached_tokens: int = 0
    answer_tokens: int = 0
    drafted: int = 0
    accepted: int = 0
    timings: dict[str, float] = field(default_factory=dict)
    error: str = ""
    """The code of the failure; empty: there was none."""
    message: str = ""
    retry_after_s: float | None = None

    @property
    def answered(self) -> bool:
        """Whether the answer is whole."""
        return self.ended_s is not None and not self.error


class Spread(msgspec.Struct, frozen=True):
    """The median and the 95th percentile of `count` values, in ms; None: there were none."""

    count: int
    p50: float | None = None
    p95: float | None = None


class KindFigures(msgspec.Struct, frozen=True):
    """The requests of one kind of prompt."""

    answered: int
    prompt_tokens: int
    first_token_ms: Spread
    inter_token_ms: Spread


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """`users` at once, over `window_s`: what came within it, and every request that was begun.

    `tokens_per_s_user` is the rate of all by the number of users, with their waits in it; `answering_tokens_per_s` the
    median rate of an answer behind its first token. Gaps are between pieces of text, each of one or more tokens.
    """

    users: int
    window_s: float
    answered: int
    cut: int
    errors: dict[str, int]
    prompt_tokens: int
    cached_tokens: int
    answer_tokens: int
    """Of whole answers, and of others by their pieces."""
    tokens_per_s: float
    tokens_per_s_user: float
    answering_tokens_per_s: float | None
    first_token_ms: Spread
    inter_token_ms: Spread
    drafted: int = 0
    accepted: int = 0
    timings_ms: dict[str, Spread] = {}
    """Of whole answers, by the server's names."""
    kinds: dict[str, KindFigures] = {}

    @property
    def failed(self) -> int:
        """How many requests ended with an error."""
        return sum(self.errors.values())


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that is not exceeded by `share` of them (nearest rank)."""
    ordered = sorted(values)
    return ordered[max(0, -(-int(share * 1000) * len(ordered) // 1000) - 1)]


def spread(values_ms: Sequence[float]) -> Spread:
    """Return what stands for many values."""
    if not values_ms:
        return Spread(0)
    return Spread(len(values_ms), *(round(percentile(values_ms, share), 2) for share in (0.5, 0.95)))


def figures_of(asked: Sequence[Asked], users: int, began_s: float, ended_s: float) -> Figures:
    """Add up the requests of `users` in the window from `began_s` to `ended_s`, on the clock of `asked`."""
    window_s = max(ended_s - began_s, 1e-9)
    per_piece = _tokens_per_piece(asked)
    tokens = [_tokens(one, per_piece) for one in asked]
    came = sum(
        each * sum(began_s <= at_s <= ended_s for at_s in one.pieces_s) / max(1, len(one.pieces_s))
        for one, each in zip(asked, tokens, strict=True)
    )
    whole = [one for one in asked if one.answered]
    rates = [rate for one in whole if (rate := _rate(one)) is not None]
    heard = [one for one in asked if not one.error]
    return Figures(
        users=users,
        window_s=round(window_s, 3),
        answered=len(whole),
        cut=sum(one.ended_s is None for one in asked),
        errors=dict(Counter(one.error for one in asked if one.error)),
        prompt_tokens=sum(one.prompt_tokens for one in whole),
        cached_tokens=sum(one.cached_tokens for one in whole),
        answer_tokens=round(sum(tokens)),
        tokens_per_s=round(came / window_s, 2),
        tokens_per_s_user=round(came / window_s / users, 2),
        answering_tokens_per_s=round(percentile(rates, 0.5), 2) if rates else None,
        first_token_ms=_first(heard),
        inter_token_ms=_gaps(heard),
        drafted=sum(one.drafted for one in whole),
        accepted=sum(one.accepted for one in whole),
        timings_ms=_timings(whole),
        kinds={kind: _kind([one for one in heard if one.kind == kind]) for kind in sorted({o.kind for o in asked})},
    )


def _tokens_per_piece(asked: Iterable[Asked]) -> float:
    whole = [one for one in asked if one.answered and one.pieces_s]
    pieces = sum(len(one.pieces_s) for one in whole)
    return sum(one.answer_tokens for one in whole) / pieces if pieces else 1.0


def _tokens(one: Asked, per_piece: float) -> float:
    return float(one.answer_tokens) if one.answered else per_piece * len(one.pieces_s)


def _rate(one: Asked) -> float | None:
    """Return the tokens/s behind the first one; None where there is too little to tell."""
    if len(one.pieces_s) < 2 or one.pieces_s[-1] <= one.pieces_s[0]:
        return None
    return (one.answer_tokens - 1) / (one.pieces_s[-1] - one.pieces_s[0])


def _first(heard: Iterable[Asked]) -> Spread:
    return spread([1000 * (one.pieces_s[0] - one.asked_s) for one in heard if one.pieces_s])


def _gaps(heard: Iterable[Asked]) -> Spread:
    return spread([1000 * (later - before) for one in heard for before, later in itertools.pairwise(one.pieces_s)])


def _timings(whole: Sequence[Asked]) -> dict[str, Spread]:
    names = dict.fromkeys(name for one in whole for name in one.timings)
    return {name: spread([one.timings[name] for one in whole if name in one.timings]) for name in names}


def _kind(heard: Sequence[Asked]) -> KindFigures:
    whole = [one for one in heard if one.answered]
    return KindFigures(len(whole), sum(one.prompt_tokens for one in whole), _first(heard), _gaps(heard))
