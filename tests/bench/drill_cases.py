"""The cases of the `drill` benchmark, and what its figures are made of. Pure."""

from __future__ import annotations

import fnmatch
import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple, get_args

from console.bench.figures import percentile
from tests.support.faults import FAULTS, Fault

Standby = Literal["hot", "warm"]
Moment = Literal["prefill", "token-1", "token-2", "token-50", "limit"]
STANDBYS: tuple[Standby, ...] = get_args(Standby)
MOMENTS: tuple[Moment, ...] = get_args(Moment)
DEAD: tuple[Fault, ...] = ("kill-agent", "kill-stage")
FROZEN: tuple[Fault, ...] = ("freeze-agent", "freeze-stage", "black-hole")
HARMLESS: tuple[Fault, ...] = ("slow-link",)
"""What takes nobody away: the answers are slower, and nothing is to be detected."""
BEFORE_LIMIT = 3
"""So many tokens before the context is full."""
AFTER = 22
"""So many tokens come after the fault, but for those at the limit."""
SHORT_WORDS, LONG_WORDS = 20, 150


class Case(NamedTuple):
    """One fault, at one moment of four running answers, with one kind of standbys."""

    fault: Fault
    standby: Standby
    moment: Moment

    @property
    def name(self) -> str:
        return f"{self.fault}/{self.standby}/{self.moment}"

    @property
    def words(self) -> int:
        """How long a prompt is: long where it is read."""
        return LONG_WORDS if self.moment == "prefill" else SHORT_WORDS

    def answer_tokens(self, context: int) -> int:
        """How many tokens to ask for; at the limit more than fit."""
        return context if self.moment == "limit" else self.fires_at(0) + AFTER

    def fires_at(self, whole: int) -> int:
        """After how many tokens of an answer of `whole` the fault happens; 0: while the prompts are read."""
        if self.moment == "prefill":
            return 0
        if self.moment == "limit":
            return whole - BEFORE_LIMIT
        return int(self.moment.removeprefix("token-"))


def select(patterns: str) -> list[Case]:
    """List the cases whose name fits one of the patterns (`kill-*/hot/*,yield/*`); empty: all. Raises SystemExit."""
    every = [Case(*parts) for parts in itertools.product(FAULTS, STANDBYS, MOMENTS)]
    every.sort(key=lambda case: STANDBYS.index(case.standby))
    wanted = [pattern.strip() for pattern in patterns.split(",") if pattern.strip()]
    found = [case for case in every if not wanted or any(fnmatch.fnmatch(case.name, one) for one in wanted)]
    if not found:
        raise SystemExit(f"No case fits {patterns!r}; names are FAULT/STANDBY/MOMENT, such as {every[0].name}.")
    return found


class Seen(NamedTuple):
    """What came of a case. Times in seconds; None: it never happened, or (`gap_s`) an answer was cut short.

    `detect_s` is from the fault until the client or the status knows of it, `gap_s` the longest silence of an answer
    from the fault on, `replay_s` how long reading as many tokens takes undisturbed, `back_s` from the end of the fault
    until everything is as before.
    """

    case: Case
    stage: int = 0
    """Whose PC was hit."""
    heard: int = 0
    """Tokens that clients had by then."""
    detect_s: float | None = None
    gap_s: float | None = None
    replay_s: float = 0.0
    lost: int = 0
    added: int = 0
    text_equal: bool = False
    note: str = ""
    problems: Sequence[str] = ()
    back_s: float | None = None

    def plain(self) -> dict[str, Any]:
        """Return it as the benchmark prints it."""
        values = {name: _rounded(value) for name, value in self._asdict().items() if name != "case"}
        return {"case": self.case.name, **values}


def _rounded(value: Any) -> Any:
    return round(value, 3) if isinstance(value, float) else value


def overall(seen: Sequence[Seen]) -> dict[str, Any]:
    """Return the figures over all cases; None where no case gives one, or the worst of them has none."""
    losses = [one for one in seen if one.case.fault not in HARMLESS]
    gaps = {standby: [one for one in losses if one.case.standby == standby] for standby in STANDBYS}
    return {
        "cases": len(seen),
        "detect_dead_s": _worst(one.detect_s for one in seen if one.case.fault in DEAD),
        "detect_frozen_s": _worst(one.detect_s for one in seen if one.case.fault in FROZEN),
        "gap_hot_p95_s": _p95(one.gap_s for one in gaps["hot"]),
        "gap_hot_less_replay_p95_s": _p95(_less_replay(one) for one in gaps["hot"]),
        "gap_warm_p95_s": _p95(one.gap_s for one in gaps["warm"]),
        "tokens_lost": sum(one.lost for one in seen),
        "tokens_added": sum(one.added for one in seen),
        "text_equal": all(one.text_equal for one in seen),
        "answers_cut": sum(len(one.problems) for one in seen),
        "not_back": sum(one.back_s is None for one in seen),
    }


def _less_replay(one: Seen) -> float | None:
    return None if one.gap_s is None else max(0.0, one.gap_s - one.replay_s)


def _worst(values: Iterable[float | None]) -> float | None:
    return _p95(values, share=1.0)


def _p95(values: Iterable[float | None], share: float = 0.95) -> float | None:
    known = [math.inf if value is None else value for value in values]
    if not known:
        return None
    found = percentile(known, share)
    return None if math.isinf(found) else round(found, 3)
