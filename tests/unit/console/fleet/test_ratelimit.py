from __future__ import annotations

from console.fleet.ratelimit import RateLimiter


def test_a_burst_is_allowed_and_then_a_steady_rate() -> None:
    limiter = RateLimiter(burst=3, per_s=2)
    assert [limiter.allow("a", 0.0) for _ in range(4)] == [True, True, True, False]
    assert [limiter.allow("a", 0.5) for _ in range(2)] == [True, False]
    assert [limiter.allow("a", 100.0) for _ in range(4)] == [True, True, True, False]


def test_sources_do_not_slow_each_other() -> None:
    limiter = RateLimiter(burst=1, per_s=1)
    assert limiter.allow("a", 0.0)
    assert limiter.allow("b", 0.0)
    assert not limiter.allow("a", 0.0)


def test_a_clock_that_steps_back_gives_nothing_away() -> None:
    limiter = RateLimiter(burst=1, per_s=1)
    assert limiter.allow("a", 100.0)
    assert not limiter.allow("a", 50.0)


def test_memory_is_bounded_and_the_quiet_are_forgotten_first() -> None:
    limiter = RateLimiter(burst=1, per_s=0.0, sources=2)
    for source in "abc":
        limiter.allow(source, 0.0)
    assert len(limiter._buckets) == 2
    assert limiter.allow("a", 0.0)
    assert not limiter.allow("c", 0.0)
