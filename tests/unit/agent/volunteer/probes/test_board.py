from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from agent.volunteer.facts import Power, Reading
from agent.volunteer.probes.base import Absent, FactName, Probe, Seen, SystemEvent, Unreadable
from agent.volunteer.probes.board import ProbeBoard
from agent.volunteer.probes.load import ExclusiveApps
from tests.support.hand_clock import HandClock
from tests.support.patience import PATIENCE_S


class Table:
    """A source that says what is written on it, in rounds: `turn` returns once every source was read anew."""

    def __init__(self, answer: Seen | Exception) -> None:
        self.answer = answer

    def read(self) -> Seen:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def close(self) -> None:
        pass

    def finish(self) -> None:
        pass


class Round:
    """A board of tables and a clock; counts the samples so that a test can wait for all of them."""

    def __init__(self, probes: list[Probe], clock: HandClock, **more: Any) -> None:
        self.inputs: list[str] = []
        self.events: list[SystemEvent] = []
        self.clock = clock
        self._sampled = threading.Semaphore(0)
        self._count = len(probes)
        self.board = ProbeBoard(
            probes,
            clock=clock,
            asleep_s=lambda: clock.slept_s,
            on_input=self.inputs.append,
            on_event=self.events.append,
            **more,
        )
        for worker in self.board._workers:
            worker._on_sample = self._wrapped(worker._on_sample)

    def _wrapped(self, before: Callable[..., None]) -> Callable[..., None]:
        def take(*arguments: Any) -> None:
            before(*arguments)
            self._sampled.release()

        return take

    def wait(self) -> None:
        for _ in range(self._count):
            assert self._sampled.acquire(timeout=PATIENCE_S)

    def turn(self) -> None:
        self.board.refresh()
        self.wait()


@contextmanager
def rounds(*probes: tuple[str, Table, FactName], last_resort: str = "", **more: Any) -> Iterator[Round]:
    made = [
        Probe(name, table, (fact,), interval_s=3600.0, last_resort=name == last_resort) for name, table, fact in probes
    ]
    run = Round(made, HandClock(), **more)
    run.board.start()
    try:
        run.wait()
        yield run
    finally:
        run.board.close()


def test_the_shortest_idle_time_of_all_sources_counts() -> None:
    mutter, x11 = Table({"idle_s": 400.0}), Table({"idle_s": 3.0})
    with rounds(("mutter", mutter, "idle_s"), ("x11", x11, "idle_s")) as run:
        run.clock.now_s += 2
        assert run.board.snapshot().idle_s == Reading(3.0, "mutter+x11", 2.0)
        x11.answer = Unreadable("gone")
        run.turn()
        assert run.board.snapshot().idle_s == Reading(400.0, "mutter", 0.0)


def test_no_source_that_works_is_unknown() -> None:
    with rounds(("mutter", Table(Unreadable("hangs")), "idle_s"), ("x11", Table(Absent("none")), "idle_s")) as run:
        assert run.board.snapshot().idle_s == Reading()


def test_a_last_resort_counts_only_where_no_better_source_exists() -> None:
    mutter = Table(Absent("no GNOME"))
    hint = ("hint", Table({"idle_s": 900.0}), "idle_s")
    with rounds(("mutter", mutter, "idle_s"), hint, last_resort="hint") as run:  # type: ignore[arg-type]
        assert run.board.snapshot().idle_s.value == 900.0
        mutter.answer = Unreadable("hangs")
        run.turn()
        assert run.board.snapshot().idle_s == Reading()
        mutter.answer = {"idle_s": 1.0}
        run.turn()
        assert run.board.snapshot().idle_s == Reading(1.0, "mutter", 0.0)


def test_one_source_that_says_locked_is_enough() -> None:
    with rounds(("logind", Table({"locked": False}), "locked"), ("saver", Table({"locked": True}), "locked")) as run:
        assert run.board.snapshot().locked.value is True


def test_the_power_saver_joins_the_power() -> None:
    saver = Table({"power_saver": True})
    power = Table({"power": Power(on_mains=True, has_battery=True, battery_percent=80.0)})
    with rounds(("sysfs", power, "power"), ("profiles", saver, "power_saver")) as run:
        assert run.board.snapshot().power.value == Power(True, True, 80.0, saver=True)
        saver.answer = Absent("none")
        run.turn()
        assert run.board.snapshot().power.value == Power(True, True, 80.0)


def test_inhibitors_of_all_sources_come_together() -> None:
    one, other = Table({"inhibitors": ("film",)}), Table({"inhibitors": ("call", "film")})
    with rounds(("gnome", one, "inhibitors"), ("kde", other, "inhibitors")) as run:
        assert run.board.snapshot().inhibitors.value == ("call", "film")


def test_input_between_two_reads_is_told() -> None:
    x11 = Table({"idle_s": 400.0})
    with rounds(("x11", x11, "idle_s")) as run:
        run.clock.now_s += 2
        x11.answer = {"idle_s": 402.0}
        run.turn()
        assert run.inputs == []
        run.clock.now_s += 2
        x11.answer = {"idle_s": 1.5}
        run.turn()
        assert run.inputs == ["x11"]


def test_a_slow_answer_is_no_input() -> None:
    class Slow(Table):
        def read(self) -> Seen:
            run.clock.now_s += 0.3
            return {"idle_s": run.clock.now_s - 500.0}

    source = Table({"idle_s": 500.0})
    with rounds(("x11", source, "idle_s")) as run:
        slow = Slow({})
        source.read = slow.read  # type: ignore[method-assign]
        run.turn()
        source.read = lambda: {"idle_s": run.clock.now_s - 500.0}  # type: ignore[method-assign]
        run.clock.now_s += 2
        run.turn()
        assert run.inputs == []
        source.read = lambda: {"idle_s": 0.0}  # type: ignore[method-assign]
        run.turn()
        assert run.inputs == ["x11"]


def test_waking_up_counts_as_input() -> None:
    x11 = Table({"idle_s": 400.0})
    with rounds(("x11", x11, "idle_s")) as run:
        run.clock.now_s += 3 * 86400  # X does not count while the PC sleeps
        run.clock.slept_s += 3 * 86400
        x11.answer = {"idle_s": 401.0}
        run.turn()
        assert run.inputs == ["x11"]
        assert run.board.snapshot().suspend_gap_s.value == 3 * 86400
        assert run.board.snapshot().suspend_gap_s.value == 0.0


class Bell:
    """A watch that says what a test tells it to."""

    name = "desk"

    def __init__(self) -> None:
        self._next = threading.Semaphore(0)
        self._said = threading.Semaphore(0)
        self._events: list[SystemEvent | None] = []

    def ring(self, event: SystemEvent) -> None:
        self._events.append(event)
        self._next.release()
        assert self._said.acquire(timeout=PATIENCE_S)

    def run(self, say: Callable[[SystemEvent], None]) -> None:
        while True:
            self._next.acquire()
            event = self._events.pop(0)
            if event is None:
                return
            say(event)
            self._said.release()

    def stop(self) -> None:
        self._events.append(None)
        self._next.release()


def test_a_push_tells_of_input_and_a_change_of_session_reads_everything_anew() -> None:
    bell, logind = Bell(), Table({"locked": True})
    with rounds(("logind", logind, "locked"), watches=[bell]) as run:
        bell.ring("input")
        assert (run.inputs, run.events) == (["desk"], [])
        logind.answer = {"locked": False}
        bell.ring("unlocked")
        run.wait()
        assert (run.inputs, run.events) == (["desk", "desk"], ["unlocked"])
        assert run.board.snapshot().locked.value is False
        bell.ring("suspending")
        run.wait()
        assert run.events == ["unlocked", "suspending"]
        assert len(run.inputs) == 2


def test_a_listener_that_fails_stops_no_probe(expected_logs: Callable[..., None]) -> None:
    expected_logs("agent.volunteer.probes.board", "listens")
    x11 = Table({"idle_s": 400.0})
    with rounds(("x11", x11, "idle_s")) as run:

        def fail(source: str) -> None:
            run.inputs.append(source)
            raise RuntimeError("the loop is closed")

        run.board._on_input = fail
        for _ in range(2):
            run.clock.now_s += 500
            x11.answer = {"idle_s": 1.0}
            run.turn()
        assert run.inputs == ["x11", "x11"]


def test_the_board_passes_on_which_programs_to_look_for() -> None:
    apps = ExclusiveApps(lambda: ["OBS.exe", "bash"])
    made = [Probe("programs", apps, ("exclusive",), interval_s=3600.0)]
    run = Round(made, HandClock(), apps=apps)
    run.board.start()
    try:
        run.wait()
        assert run.board.snapshot().exclusive.value == ()
        run.board.look_for(["obs", "game"])
        run.turn()
        assert run.board.snapshot().exclusive.value == ("obs",)
    finally:
        run.board.close()


def test_rows_say_what_each_source_sees_and_why_not() -> None:
    x11, mutter = Table({"idle_s": 4.0}), Table(Absent("no GNOME"))
    with rounds(("power", Table({"power": Power(True, False)}), "power"), ("x11", x11, "idle_s"),
                ("mutter", mutter, "idle_s")) as run:  # fmt: skip
        run.clock.now_s += 1
        rows = [(row.fact, row.probe, row.value, row.problem, row.age_s) for row in run.board.rows()]
        assert rows == [
            ("idle_s", "x11", 4.0, "", 1.0),
            ("idle_s", "mutter", None, "no GNOME", 1.0),
            ("power", "power", Power(True, False), "", 1.0),
        ]


def test_every_fact_can_be_told() -> None:
    names = set(ProbeBoard([]).snapshot().__struct_fields__)
    told = set(Seen.__annotations__) - {"power_saver"}
    assert names == told | {"at_s", "unix_s", "utc_offset_s", "suspend_gap_s"}


@pytest.mark.parametrize("close", [True, False])
def test_serving_makes_presence_probes_read_closely(close: bool) -> None:
    probe = Probe("x11", Table({"idle_s": 4.0}), ("idle_s",), interval_s=3600.0, close_interval_s=0.01)
    run = Round([probe], HandClock())
    run.board.start()
    try:
        run.wait()
        run.board.watch_closely(close)
        if close:
            for _ in range(3):
                run.wait()
        else:
            assert not run._sampled.acquire(blocking=False)
    finally:
        run.board.close()
