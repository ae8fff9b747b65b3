"""Threads for prompts: one at a time, in turn for the keys, never given away before they end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from console.api.openai.prompts import SHORT_BYTES, Tokenizing, Turns
from tests.support.patience import PATIENCE_S, until


class Work:
    """Calls that run until they are let go, in the order in which they began."""

    def __init__(self) -> None:
        self.began: list[str] = []
        self._may_end: dict[str, threading.Event] = {}

    def __call__(self, name: str) -> Callable[[], str]:
        self._may_end[name] = threading.Event()

        def run() -> str:
            self.began.append(name)
            assert self._may_end[name].wait(PATIENCE_S)
            return name

        return run

    def end(self, name: str) -> None:
        self._may_end[name].set()

    def end_all(self) -> None:
        for name in self._may_end:
            self.end(name)


@pytest.fixture
async def work() -> AsyncIterator[Work]:
    work = Work()
    yield work
    work.end_all()


async def asked(turns: Turns, key: str, work: Callable[[], Any]) -> asyncio.Task[Any]:
    """Ask, and return once the call stands in its row."""
    task = asyncio.create_task(turns.run(key, work))
    await asyncio.sleep(0)
    return task


async def test_the_keys_take_turns_and_each_keeps_its_order(work: Work) -> None:
    turns = Turns()
    tasks = [await asked(turns, name[0], work(name)) for name in ("a1", "a2", "a3", "b1", "c1", "b2")]
    for name in (order := ["a1", "b1", "c1", "a2", "b2", "a3"]):
        await until(lambda name=name: work.began[-1:] == [name])  # type: ignore[misc]  # a lambda's default
        work.end(name)
    assert await asyncio.gather(*tasks) == ["a1", "a2", "a3", "b1", "c1", "b2"]
    assert work.began == order


async def test_who_gives_up_leaves_the_row_and_a_thread_that_runs_keeps_its_turn(work: Work) -> None:
    turns = Turns()
    runs, waits, other = [await asked(turns, key, work(key)) for key in ("a", "b", "c")]
    await until(lambda: work.began == ["a"])
    for task in (runs, waits):
        task.cancel()
    await asyncio.wait([runs, waits])
    assert not other.done()
    assert work.began == ["a"]
    work.end("a")
    await until(lambda: work.began == ["a", "c"])
    work.end("c")
    assert await other == "c"


async def test_what_fails_is_told_and_the_next_one_runs() -> None:
    turns = Turns()
    failing, giving_up, right = [
        await asked(turns, "a", work) for work in (lambda: 1 // 0, lambda: 1 // 0, lambda: "right")
    ]
    with pytest.raises(ZeroDivisionError):
        await failing
    giving_up.cancel()
    assert await right == "right"


async def test_a_short_prompt_does_not_wait_for_a_long_one(work: Work) -> None:
    tokenizing = Tokenizing()
    long = asyncio.create_task(tokenizing.run("a", SHORT_BYTES + 1, work("long")))
    await until(lambda: work.began == ["long"])
    assert await tokenizing.run("a", SHORT_BYTES, lambda: "short") == "short"
    work.end("long")
    assert await long == "long"
