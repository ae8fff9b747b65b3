"""console.deployments.recent: the last answers, none of them old, and nothing that anybody wrote."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from console.api.admin import types as wire
from console.deployments.recent import KEPT_S, MOST, RecentAnswers
from console.pipeline.ended import EndedAnswer
from console.pipeline.parts import TimeParts
from console.pipeline.types import Details, Timings, Usage
from console.registry.registry import Registry
from tests.support.deployments import ask, deploying
from tests.support.fleet import Fleet
from tests.support.patience import until
from tests.support.served import asked_and_stuck, playing_all, served_by


def ended(name: str, total_ms: float) -> EndedAnswer:
    timings = Timings(1.0, 2.0, total_ms, TimeParts(queue_ms=total_ms), "It waited.")
    details = Details(["ann"], 3, 2, [], "It waited, at ann.")
    return EndedAnswer(name, "key-1", "stop", "", Usage(5, 7, 1), timings, details, [])


def names(answers: list[wire.AnswerTime]) -> list[str]:
    return [one.request_id for one in answers]


def test_the_newest_or_the_slowest_come_first() -> None:
    recent = RecentAnswers()
    for number, total_ms in enumerate([30.0, 10.0, 20.0, 30.0]):
        recent.take("small", 0, ended(str(number), total_ms), 1000.0 + number)
    assert names(recent.view("newest", 3, 1010.0)) == ["3", "2", "1"]
    assert names(recent.view("slowest", 10, 1010.0)) == ["3", "0", "2", "1"]
    assert recent.view("slowest", 0, 1010.0) == []


def test_an_hour_and_a_thousand_answers_are_remembered() -> None:
    recent = RecentAnswers()
    recent.take("small", 0, ended("old", 1.0), 0.0)
    recent.take("small", 0, ended("new", 1.0), KEPT_S)
    assert names(recent.view("newest", 5, KEPT_S)) == ["new", "old"]
    assert names(recent.view("newest", 5, KEPT_S + 0.1)) == ["new"]
    for number in range(MOST):
        recent.take("small", 0, ended(str(number), 1.0), KEPT_S)
    assert len(recent.view("newest", 2 * MOST, KEPT_S)) == MOST


def test_what_is_too_old_goes_without_anybody_who_looks() -> None:
    recent = RecentAnswers()
    for number in range(3):
        recent.take("small", 0, ended(str(number), 1.0), 10.0 * number)
    assert recent.forget(KEPT_S + 5.0) == 5.0
    assert len(recent._answers) == 2
    recent.take("small", 0, ended("later", 1.0), 3 * KEPT_S)
    assert len(recent._answers) == 1, "also by others that end"
    assert recent.forget(5 * KEPT_S) is None
    assert len(recent._answers) == 0


async def test_a_console_forgets_answers_by_itself(
    fleet: Fleet, registry: Registry, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("console.deployments.book.FORGET_EVERY_S", 0.01)
    monkeypatch.setattr("console.deployments.recent.KEPT_S", 0.5)
    taken: list[EndedAnswer] = []
    take = RecentAnswers.take

    def count(recent: RecentAnswers, model: str, number: int, ended: EndedAnswer, now_s: float) -> None:
        taken.append(ended)
        take(recent, model, number, ended, now_s)

    monkeypatch.setattr(RecentAnswers, "take", count)
    async with deploying(fleet, registry) as deployments, playing_all(fleet, "ann", "bob") as pcs:
        await served_by(deployments, pcs)
        recent = deployments._book.recent
        for number in (1, 2):
            await ask(deployments)
            await until(lambda number=number: len(taken) == number and not recent._answers)  # type: ignore[misc]


def test_an_answer_is_told_with_its_sentence_that_names_pcs() -> None:
    recent = RecentAnswers()
    recent.take("small", 1, ended("a", 12.0), 5.0)
    (told,) = recent.view("newest", 1, 6.0)
    assert (told.model, told.pipeline, told.pcs, told.slowest) == ("small", 1, ["ann"], "It waited, at ann.")
    assert (told.prompt_tokens, told.answer_tokens, told.cached_tokens) == (5, 7, 1)
    fields = set(msgspec.structs.asdict(told))
    assert not fields & {"prompt", "messages", "text", "content"}


async def test_answers_of_the_fleet_are_remembered_whatever_became_of_them(
    fleet: Fleet, registry: Registry, library: Path
) -> None:
    async with deploying(fleet, registry) as deployments, playing_all(fleet, "ann", "bob") as pcs:
        served = await served_by(deployments, pcs)
        await ask(deployments)
        asking = await asked_and_stuck(deployments, served.tail, after=2)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        left, whole = deployments.answer_times("newest", 5).answers
        assert (left.ending, whole.ending, whole.pipeline) == ("cancelled", "stop", 0)
        assert [stage.pc for stage in whole.stages] == whole.pcs
        assert set(whole.pcs) == set(pcs)
        for one in (left, whole):
            assert one.parts.total_ms == pytest.approx(one.total_ms)
        assert whole.parts.link_ms > 0
        assert (whole.answer_tokens, whole.first_token_ms <= whole.total_ms) == (len("Paris.") + 1, True)
