"""agent.look.loop: work on the loop thread, answers on the GUI thread, and an end to all of it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest
from PySide6.QtCore import QObject
from pytestqt.qtbot import QtBot

from agent.look.loop import Job, LoopThread, _ending, stop_all
from tests.conftest import ExpectLogs


@pytest.fixture
def loop(qtbot: QtBot) -> Iterator[LoopThread]:
    made = LoopThread("a test's loop")
    made.start()
    yield made
    made.stop()


def test_work_runs_on_the_loop_and_what_it_posts_on_the_gui_thread(loop: LoopThread, qtbot: QtBot) -> None:
    where: list[threading.Thread] = []

    async def work(_: Job) -> None:
        where.append(threading.current_thread())
        loop.post(lambda: where.append(threading.current_thread()))

    loop.begin(work)
    qtbot.waitUntil(lambda: len(where) == 2)
    assert where[0].name == "a test's loop"
    assert where[1] is threading.main_thread()


def test_cancelled_work_ends_and_is_heard_of_no_more(loop: LoopThread, qtbot: QtBot) -> None:
    heard: list[str] = []
    begun, ended = threading.Event(), threading.Event()

    async def work(job: Job) -> None:
        loop.post(job.guard(lambda: heard.append("posted before, taken up after")))
        begun.set()
        try:
            await asyncio.sleep(3600)
        finally:
            ended.set()

    job = loop.begin(work)
    assert begun.wait(30)
    job.cancel()
    assert ended.wait(30)
    loop.post(lambda: heard.append("last"))
    qtbot.waitUntil(lambda: "last" in heard)
    assert heard == ["last"]


def test_work_that_is_cancelled_before_it_begins_never_does(qtbot: QtBot) -> None:
    loop = LoopThread("late")
    began: list[bool] = []

    async def work(_: Job) -> None:
        began.append(True)

    loop.begin(work).cancel()
    loop.start()
    done = threading.Event()
    loop.to_loop(done.set)
    assert done.wait(30)
    loop.stop()
    assert not began


def test_unexpected_failures_are_logged_and_the_loop_goes_on(
    loop: LoopThread, qtbot: QtBot, expected_logs: ExpectLogs
) -> None:
    expected_logs("agent.look.loop", "failed unexpectedly")
    heard: list[bool] = []

    async def fail(_: Job) -> None:
        raise RuntimeError("a surprise")

    async def work(_: Job) -> None:
        loop.post(heard.append, True)

    loop.begin(fail)
    loop.begin(work)
    qtbot.waitUntil(lambda: bool(heard))


def test_the_end_cancels_what_runs_then_closes(qtbot: QtBot) -> None:
    order: list[str] = []

    class Closing(LoopThread):
        async def close(self) -> None:
            order.append("closed")

    loop = Closing("closing")
    begun = threading.Event()

    async def work(_: Job) -> None:
        begun.set()
        try:
            await asyncio.sleep(3600)
        finally:
            order.append("cancelled")

    loop.start()
    loop.begin(work)
    assert begun.wait(30)
    loop.stop()
    assert order == ["cancelled", "closed"]
    loop.to_loop(order.append, "never")
    loop.stop()
    assert order == ["cancelled", "closed"]


def test_a_thread_that_does_not_end_in_time_is_told_of(
    qtbot: QtBot, monkeypatch: pytest.MonkeyPatch, expected_logs: ExpectLogs
) -> None:
    expected_logs("agent.look.loop", "held up has not ended after")
    monkeypatch.setattr("agent.look.loop.STOP_WAIT_S", 0.01)
    begun, let_go = threading.Event(), threading.Event()

    async def work(_: Job) -> None:
        begun.set()
        let_go.wait()

    loop = LoopThread("held up")
    loop.start()
    loop.begin(work)
    assert begun.wait(30)
    assert not loop.stop()
    let_go.set()
    monkeypatch.setattr("agent.look.loop.STOP_WAIT_S", 30.0)
    assert loop.stop()
    assert loop.stop()


def test_a_loop_that_never_started_leaves_nothing_open(qtbot: QtBot) -> None:
    assert LoopThread("never").stop()


def test_an_end_that_nobody_waits_for_comes_when_the_work_lets_it(qtbot: QtBot) -> None:
    parent = QObject()
    loop, begun, may_end = LoopThread("slow to end", parent), threading.Event(), threading.Event()
    heard: list[str] = []

    def slow() -> None:
        begun.set()
        assert may_end.wait(30)

    async def work(_: Job) -> None:
        loop.post(heard.append, "posted before, taken up after")
        await asyncio.to_thread(slow)

    loop.start()
    loop.begin(work)
    assert begun.wait(30)
    loop.stop_soon()
    assert any(thread.name == "slow to end" for thread in threading.enumerate())
    assert loop.parent() is None
    loop.to_loop(heard.append, "never")
    assert loop in _ending
    may_end.set()
    qtbot.waitUntil(lambda: not _ending)
    assert not any(thread.name == "slow to end" for thread in threading.enumerate())
    assert not heard


def test_a_program_waits_at_its_end_for_what_was_left_to_itself(qtbot: QtBot) -> None:
    loops = [LoopThread("left to itself") for _ in range(3)]
    for loop in loops[:2]:
        loop.start()
    for loop in loops:
        loop.stop_soon()
    stop_all()
    assert not any(thread.name == "left to itself" for thread in threading.enumerate())
