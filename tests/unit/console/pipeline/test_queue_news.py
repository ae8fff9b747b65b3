"""Those who wait are told of every change while they are few, and of several at once when they are many."""

from __future__ import annotations

import asyncio

import pytest

from console.pipeline import queue_news
from console.pipeline.queue_news import FEW, QueueNews
from tests.support.patience import PATIENCE_S, until


class Told:
    """Counts how often everybody was told."""

    def __init__(self, waiting: int) -> None:
        self.waiting = waiting
        self.times = 0

    def __call__(self) -> int:
        self.times += 1
        return self.waiting


async def test_few_are_told_of_every_change_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_news, "EACH_S", PATIENCE_S)
    told = Told(FEW)
    news = QueueNews(told)
    for times in (1, 2, 3):
        news.changed()
        news.changed()
        await until(lambda times=times: told.times == times)  # type: ignore[misc]  # a lambda's default


async def test_many_are_told_at_once_the_first_time_and_then_when_it_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_news, "EACH_S", PATIENCE_S)
    told = Told(FEW + 1)
    news = QueueNews(told)
    news.changed()
    await until(lambda: told.times == 1)
    news.changed()
    for _ in range(20):
        await asyncio.sleep(0)
    assert told.times == 1
    news.close()
    monkeypatch.setattr(queue_news, "EACH_S", 0.001)
    told = Told(FEW + 1)
    news = QueueNews(told)
    for times in (1, 2, 3):
        news.changed()
        await until(lambda times=times: told.times == times)  # type: ignore[misc]  # a lambda's default
    news.close()
