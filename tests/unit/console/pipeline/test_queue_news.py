"""Those who wait are told of every change while they are few, and some after the others when they are many."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from console.pipeline import queue_news
from console.pipeline.queue_news import FEW, QueueNews
from tests.support.patience import PATIENCE_S, until


class Queue:
    """Who waits, and the places that were told, in order."""

    def __init__(self, waiting: int) -> None:
        self.waiting = waiting
        self.told: list[int] = []
        self.then: Callable[[], None] | None = None
        """What happens once, after the next part."""

    def __call__(self, first: int, count: int) -> int:
        waiting = self.waiting
        self.told += range(first, min(first + count, waiting))
        if self.then is not None:
            asyncio.get_running_loop().call_soon(self.then)
            self.then = None
        return waiting

    def becomes(self, waiting: int, news: QueueNews) -> None:
        """Change, and say so."""
        self.waiting = waiting
        news.changed()


async def test_few_are_told_of_every_change_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_news, "EACH_S", PATIENCE_S)
    queue = Queue(FEW)
    news = QueueNews(queue)
    for times in (1, 2, 3):
        news.changed()
        news.changed()
        await until(lambda times=times: queue.told == times * list(range(FEW)))  # type: ignore[misc]  # a default


async def test_many_are_told_in_parts_and_again_if_the_queue_changed_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_news, "EACH_S", 0.001)
    queue = Queue(2 * FEW + 3)
    news = QueueNews(queue)
    queue.then = lambda: queue.becomes(2 * FEW + 2, news)
    news.changed()
    first = list(range(2 * FEW + 2))
    await until(lambda: queue.told == 2 * first)
    await asyncio.sleep(5 * FEW * queue_news.EACH_S)  # time for one part more, which must not come
    assert queue.told == 2 * first


async def test_between_the_parts_others_have_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_news, "EACH_S", PATIENCE_S)
    queue = Queue(FEW + 1)
    news = QueueNews(queue)
    news.changed()
    await until(lambda: queue.told == list(range(FEW)))
    for _ in range(20):
        news.changed()
        await asyncio.sleep(0)
    assert len(queue.told) == FEW
    news.close()


async def test_a_queue_that_shrinks_amid_the_news_is_told_from_its_head(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_news, "EACH_S", 0.001)
    queue = Queue(2 * FEW)
    news = QueueNews(queue)
    queue.then = lambda: queue.becomes(2, news)
    news.changed()
    await until(lambda: queue.told[FEW:] == [0, 1])
