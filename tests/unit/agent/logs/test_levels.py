"""agent.logs.levels: how much is logged, logger by logger, and for how long."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.logs.levels import LevelRefused, Levels
from agent.logs.types import ALL, LoggerLevel

KNOWN = ("agent.link", "agent.link.fetch", "console.fleet", "console.fleet.hub")


@pytest.fixture
def clock() -> list[float]:
    return [0.0]


@pytest.fixture
def levels(clock: list[float]) -> Iterator[Levels]:
    for name in KNOWN:
        logging.getLogger(name)
    made = Levels(lambda: clock[0])
    made.begin("INFO")
    yield made
    made.end()
    assert all(logging.getLogger(name).level == logging.NOTSET for name in (*KNOWN, "agent", "console"))


def shown(levels: Levels, logger: str, level: str) -> bool:
    number = logging.getLevelNamesMapping()[level]
    record = logging.LogRecord(logger, number, "f", 1, "text", None, None)
    return logging.getLogger(logger).isEnabledFor(number) and levels.shows(record)


def test_the_nearest_logger_above_counts(levels: Levels) -> None:
    levels.set("agent", "WARNING")
    levels.set("agent.link.fetch", "DEBUG")
    assert shown(levels, "agent.link.fetch", "DEBUG")
    assert not shown(levels, "agent.link", "INFO")
    assert shown(levels, "console.fleet", "INFO")
    assert not shown(levels, "console.fleet", "DEBUG")


def test_after_its_time_a_level_is_what_it_was(levels: Levels, clock: list[float]) -> None:
    levels.set("agent.link", "ERROR")
    levels.set("agent.link", "DEBUG", 60.0)
    levels.set(ALL, "DEBUG", 30.0)
    assert levels.all() == [LoggerLevel(ALL, "DEBUG", 30.0), LoggerLevel("agent.link", "DEBUG", 60.0)]
    clock[0] = 31.0
    assert shown(levels, "agent.link", "DEBUG")
    assert not shown(levels, "console.fleet", "DEBUG")
    clock[0] = 61.0
    shown(levels, "agent.link", "DEBUG")  # the first that comes too late
    assert not shown(levels, "agent.link", "WARNING")
    assert levels.all() == [LoggerLevel(ALL, "INFO"), LoggerLevel("agent.link", "ERROR")]
    assert not logging.getLogger("console.fleet").isEnabledFor(logging.DEBUG)


def test_a_level_that_stays_takes_the_place_of_one_for_a_time(levels: Levels, clock: list[float]) -> None:
    levels.set("agent.link", "DEBUG", 60.0)
    levels.set("agent.link", "WARNING")
    assert not shown(levels, "agent.link", "INFO")
    clock[0] = 100.0
    assert levels.all()[1] == LoggerLevel("agent.link", "WARNING")


def test_libraries_are_never_heard_below_warning(levels: Levels) -> None:
    levels.set(ALL, "DEBUG")
    for name in ("websockets.server", "httpx2", "uvicorn.error", "sqlalchemy.engine", "asyncio", "agents", "root"):
        record = logging.LogRecord(name, logging.INFO, "f", 1, "a frame with a prompt", None, None)
        assert not levels.shows(record)
        record.levelno = logging.WARNING
        assert levels.shows(record)


def test_what_is_shown_less_still_reaches_those_who_listen_to_the_work(levels: Levels) -> None:
    levels.set(ALL, "ERROR")
    assert logging.getLogger("agent.link").isEnabledFor(logging.INFO)
    assert not shown(levels, "agent.link", "WARNING")


@pytest.mark.parametrize(
    ("logger", "level", "for_s", "said"),
    [
        ("websockets", "DEBUG", None, "no logger of Fallow's"),
        ("", "DEBUG", None, "no logger of Fallow's"),
        ("agent.linc", "DEBUG", None, "is it agent.link"),
        ("agent", "TRACE", None, "no level"),
        ("agent", "debug", None, "no level"),
        ("agent", "DEBUG", 0.0, "up to 7 days"),
        ("agent", "DEBUG", 1e9, "up to 7 days"),
        ("agent", "DEBUG", float("nan"), "up to 7 days"),
    ],
)
def test_what_cannot_be_set_is_a_sentence(
    levels: Levels, logger: str, level: str, for_s: float | None, said: str
) -> None:
    before = levels.all()
    with pytest.raises(LevelRefused, match=said):
        levels.set(logger, level, for_s)
    assert levels.all() == before


CHANGES = st.tuples(
    st.sampled_from([ALL, "agent", *KNOWN]), st.sampled_from(["DEBUG", "INFO", "WARNING", "ERROR"]),
    st.one_of(st.none(), st.floats(1, 100)), st.floats(0, 50),
)  # fmt: skip


@settings(max_examples=40)
@given(st.lists(CHANGES, max_size=12))
def test_whatever_is_set_ends_as_if_only_what_stays_had_been(
    changes: list[tuple[str, str, float | None, float]],
) -> None:
    now = [0.0]
    levels, staying = Levels(lambda: now[0]), Levels(lambda: 0.0)
    for made in (levels, staying):
        made.begin("INFO")
    try:
        for logger, level, for_s, pause_s in changes:
            now[0] += pause_s
            levels.set(logger, level, for_s)
            if for_s is None:
                staying.set(logger, level)
        now[0] += 200.0
        assert levels.all() == staying.all()
        for name in KNOWN:
            for number in (10, 20, 30, 40):
                record = logging.LogRecord(name, number, "f", 1, "text", None, None)
                assert levels.shows(record) == staying.shows(record)
    finally:
        levels.end()
        staying.end()
