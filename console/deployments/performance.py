"""How fast a model answered in the last quarter of an hour. Pure: times come in as seconds of one monotonic clock."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from console.api.admin.types.running import ModelPerformance

BUCKET_S = 5.0
BUCKETS = 180
RECENT_BUCKETS = 60
"""What percentiles are said of: the last five minutes."""
BINS_A_DECADE = 20
"""Times are counted by their size, each bin 12 % larger than the one before."""
PERCENT = 95


@dataclass(slots=True)
class _Bucket:
    number: int
    tokens: int = 0
    answers: int = 0
    first: Counter[int] = field(default_factory=Counter)
    between: Counter[int] = field(default_factory=Counter)


class Performance:
    """Tokens, times to the first token, and times between tokens, as whoever asks sees them; probes do not count."""

    def __init__(self) -> None:
        self._buckets: deque[_Bucket] = deque(maxlen=BUCKETS + 1)

    def note_first(self, now_s: float, tokens: int, waited_s: float) -> None:
        """An answer's first tokens came, so long after it was asked for."""
        bucket = self._bucket(now_s)
        bucket.answers += 1
        bucket.tokens += tokens
        bucket.first[_bin(waited_s)] += 1

    def note_more(self, now_s: float, tokens: int, waited_s: float) -> None:
        """More tokens of an answer came, so long after the ones before; each counts with its share of the time."""
        bucket = self._bucket(now_s)
        bucket.tokens += tokens
        bucket.between[_bin(waited_s / tokens)] += tokens

    def view(self, model: str, now_s: float) -> ModelPerformance:
        """Describe the buckets that are over, the oldest first."""
        newest = int(now_s // BUCKET_S)
        known = {bucket.number: bucket for bucket in self._buckets}
        over = [known.get(number, _Bucket(number)) for number in range(newest - BUCKETS, newest)]
        recent = [*over[-RECENT_BUCKETS:], known.get(newest, _Bucket(newest))]
        return ModelPerformance(
            model=model,
            answers=sum(bucket.answers for bucket in recent),
            first_token_ms=_percentile(bucket.first for bucket in recent),
            between_tokens_ms=_percentile(bucket.between for bucket in recent),
            tokens_per_second=[bucket.tokens / BUCKET_S for bucket in over],
            first_token_ms_then=[_percentile([bucket.first]) for bucket in over],
            between_tokens_ms_then=[_percentile([bucket.between]) for bucket in over],
        )

    def is_over(self, now_s: float) -> bool:
        """Whether nothing that counts still happened."""
        return not self._buckets or self._buckets[-1].number < now_s // BUCKET_S - BUCKETS

    def _bucket(self, now_s: float) -> _Bucket:
        number = int(now_s // BUCKET_S)
        if not self._buckets or self._buckets[-1].number < number:
            self._buckets.append(_Bucket(number))
        return self._buckets[-1]


def _bin(waited_s: float) -> int:
    """Say which bin a time is counted in: its logarithm, of at least a hundredth of a millisecond."""
    return round(BINS_A_DECADE * math.log10(max(waited_s * 1000, 0.01)))


def _percentile(counted: Iterable[Counter[int]]) -> float | None:
    """Return the time in ms that 95 of 100 stay within (the middle of its bin); None where nothing was counted."""
    together: Counter[int] = Counter()
    for one in counted:
        together.update(one)
    wanted = -(-PERCENT * together.total() // 100)
    seen = 0
    for place in sorted(together):
        seen += together[place]
        if seen >= wanted:
            return round(10 ** (place / BINS_A_DECADE), 3)
    return None
