from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from agent.volunteer.probes.base import Absent, Probe, Seen, SystemEvent, Unreadable
from agent.volunteer.probes.worker import KEEP_LATE_S, Sample, WatchThread, Worker
from tests.support.hand_clock import HandClock
from tests.support.patience import PATIENCE_S

Answer = Seen | Exception


class ScriptedSource:
    """Answers one read for each `give`; waits for it, like a source that hangs."""

    def __init__(self) -> None:
        self.closed = self.finished = False
        self.reading = threading.Semaphore(0)
        self._given = threading.Semaphore(0)
        self._answers: list[Answer] = []

    def give(self, answer: Answer) -> None:
        self._answers.append(answer)
        self._given.release()

    def read(self) -> Seen:
        self.reading.release()
        assert self._given.acquire(timeout=PATIENCE_S)
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self) -> None:
        self.closed = True

    def finish(self) -> None:
        self.finished = True


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def source() -> ScriptedSource:
    return ScriptedSource()


class Run:
    """A worker whose reads begin when the test says so, and whose samples the test waits for."""

    def __init__(self, source: ScriptedSource, clock: HandClock) -> None:
        self.source = source
        self.samples: list[Sample] = []
        self._came = threading.Semaphore(0)
        self.worker = Worker(Probe("film", source, ("idle_s",), interval_s=3600.0), clock, self._take)
        self.worker.start()
        assert source.reading.acquire(timeout=PATIENCE_S)

    def _take(self, probe: Probe, sample: Sample) -> None:
        assert probe.name == "film"
        self.samples.append(sample)
        self._came.release()

    def answer(self, answer: Answer) -> Sample:
        self.source.give(answer)
        assert self._came.acquire(timeout=PATIENCE_S)
        return self.worker.look()

    def again(self) -> None:
        self.worker.hurry()
        assert self.source.reading.acquire(timeout=PATIENCE_S)


@pytest.fixture
def run(source: ScriptedSource, clock: HandClock) -> Iterator[Run]:
    run = Run(source, clock)
    yield run
    run.worker.stop()
    source.give(Unreadable("the end"))
    assert run.worker.join(PATIENCE_S)
    assert (source.closed, source.finished) == (True, True)


def test_before_the_first_answer_nothing_is_known(run: Run) -> None:
    assert run.worker.look().problem == "not read yet"
    assert run.worker.look().seen == {}


def test_an_answer_is_kept_with_the_moment_it_was_asked_for(run: Run, clock: HandClock) -> None:
    sample = run.answer({"idle_s": 7.0})
    clock.now_s += 2
    assert (sample.at_s, sample.seen, sample.problem) == (1000.0, {"idle_s": 7.0}, "")


@pytest.mark.parametrize(
    ("failure", "problem", "absent"),
    [(Absent("no GNOME"), "no GNOME", True), (Unreadable("no answer"), "no answer", False),
     (ZeroDivisionError("odd"), "failed (ZeroDivisionError: odd)", False)],
)  # fmt: skip
def test_a_failure_makes_the_facts_unknown_at_once(run: Run, failure: Exception, problem: str, absent: bool) -> None:
    run.answer({"idle_s": 7.0})
    run.again()
    sample = run.answer(failure)
    assert (sample.seen, sample.problem, sample.absent) == ({}, problem, absent)


def test_a_source_that_hangs_ages_and_is_unknown_in_the_end(run: Run, clock: HandClock) -> None:
    run.answer({"idle_s": 7.0})
    run.again()
    clock.now_s += 0.4
    assert run.worker.look().problem == ""
    clock.now_s += 0.2
    late = run.worker.look()
    assert (late.seen, late.problem) == ({"idle_s": 7.0}, "no answer for 0.6 s")
    clock.now_s += KEEP_LATE_S
    assert run.worker.look().seen == {}


def test_a_source_that_hangs_from_the_start_is_unknown(run: Run, clock: HandClock) -> None:
    clock.now_s += 3
    assert (run.worker.look().seen, run.worker.look().problem) == ({}, "no answer for 3.0 s")


def test_an_answer_after_the_deadline_is_dropped_and_the_next_in_time_counts(run: Run, clock: HandClock) -> None:
    run.answer({"idle_s": 7.0})
    run.again()
    clock.now_s += 0.7
    run.source.give({"idle_s": 500.0})
    run.again()
    late = run.worker.look()
    assert (late.seen, late.problem) == ({"idle_s": 7.0}, "answered only after 0.7 s")
    assert len(run.samples) == 1
    assert run.answer({"idle_s": 1.0}).seen == {"idle_s": 1.0}


def test_a_source_that_hangs_costs_one_thread_however_often_it_is_hurried(run: Run, clock: HandClock) -> None:
    before = threading.active_count()
    for _ in range(50):
        run.worker.hurry()
        clock.now_s += 1
        run.worker.look()
    assert threading.active_count() == before
    run.source.give({"idle_s": 1.0})


def test_closing_leaves_a_hanging_source_behind(source: ScriptedSource, clock: HandClock) -> None:
    run = Run(source, clock)
    run.worker.stop()
    assert not run.worker.join(0.05)
    source.give({"idle_s": 1.0})
    assert run.worker.join(PATIENCE_S)
    assert run.samples == []


class ScriptedWatch:
    name = "desk"

    def __init__(self, runs: list[Callable[[Callable[[SystemEvent], None]], None]]) -> None:
        self._runs = runs
        self.began = threading.Semaphore(0)
        self._stopped = threading.Event()

    def run(self, say: Callable[[SystemEvent], None]) -> None:
        self.began.release()
        if self._runs:
            self._runs.pop(0)(say)
        self._stopped.wait(PATIENCE_S)

    def stop(self) -> None:
        self._stopped.set()


def test_a_watch_begins_again_after_its_connection_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.volunteer.probes.worker.FIRST_PAUSE_S", 0.001)

    def broken(say: Callable[[SystemEvent], None]) -> None:
        say("input")
        raise Unreadable("the shell went away")

    def crashing(say: Callable[[SystemEvent], None]) -> None:
        raise KeyError("odd")

    heard: list[SystemEvent] = []
    watch = ScriptedWatch([broken, crashing])
    thread = WatchThread(watch, heard.append)
    thread.start()
    for _ in range(3):
        assert watch.began.acquire(timeout=PATIENCE_S)
    thread.stop()
    assert thread.join(PATIENCE_S)
    assert heard == ["input"]
