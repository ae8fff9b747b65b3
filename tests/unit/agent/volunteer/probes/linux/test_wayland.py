from __future__ import annotations

import contextlib
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.patience import PATIENCE_S

if sys.platform != "linux":
    pytest.skip("Wayland is on Linux", allow_module_level=True)

from agent.volunteer.probes.base import Absent, SystemEvent, Unreadable
from agent.volunteer.probes.linux.wayland import WaylandIdle
from agent.volunteer.probes.worker import WatchThread
from tests.support.hand_clock import HandClock
from tests.support.screens import Compositor

IDLED, RESUMED = 0, 1
MakeCompositor = Callable[..., Compositor]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[MakeCompositor]:
    made: list[Compositor] = []

    def make(**more: int) -> Compositor:
        made.append(Compositor(tmp_path, **more))
        return made[-1]

    yield make
    for compositor in made:
        compositor.close()


class Listening:
    """The watch in its thread; `until` waits for the source to say something."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.clock = HandClock()
        self.source = WaylandIdle(environment, self.clock)
        self.came = threading.Semaphore(0)
        self._thread = WatchThread(self.source, self._take)
        self._thread.start()

    def _take(self, event: SystemEvent) -> None:
        assert event == "input"
        self.came.release()

    def until(self, idle_s: float | str) -> None:
        """Poll for an idle time, or for a problem that has the given text in it."""
        pause = threading.Event()
        found: float | str = ""
        for _ in range(12_000):
            try:
                found = self.source.read()["idle_s"]
            except (Absent, Unreadable) as error:
                found = str(error)
            if found == idle_s or (isinstance(idle_s, str) and idle_s in str(found)):
                return
            pause.wait(0.005)
        pytest.fail(f"{found!r} instead of {idle_s!r}")

    def stop(self) -> None:
        self._thread.stop()
        assert self._thread.join(PATIENCE_S)


@contextlib.contextmanager
def listening_to(compositor: Compositor) -> Iterator[Listening]:
    """Watch a compositor that has been asked what there is to ask."""
    listening = Listening(compositor.environment)
    try:
        assert compositor.ready.wait(PATIENCE_S)
        yield listening
    finally:
        listening.stop()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.volunteer.probes.worker.FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr("agent.volunteer.probes.worker.ABSENT_INTERVAL_S", 0.01)


def test_idle_time_follows_from_when_the_compositor_said_so(make: MakeCompositor) -> None:
    compositor = make()
    with listening_to(compositor) as listening:
        listening.until(0.0)
        compositor.say(IDLED)
        listening.until(1.0)
        listening.clock.now_s += 30
        assert listening.source.read() == {"idle_s": 31.0}
        compositor.say(RESUMED)
        assert listening.came.acquire(timeout=PATIENCE_S)
        assert listening.source.read() == {"idle_s": 0.0}


@pytest.mark.parametrize(("version", "opcode"), [(1, 1), (2, 2), (3, 2)])
def test_inhibitors_do_not_hold_the_notification_back_where_that_can_be_asked_for(
    make: MakeCompositor, version: int, opcode: int
) -> None:
    compositor = make(notifier=version)
    with listening_to(compositor):
        asked = [(op, struct.unpack("=III", body)[1]) for target, op, body in compositor.requests if target == 4]
        assert asked == [(opcode, 1000)]


def test_two_seats_are_idle_only_together(make: MakeCompositor) -> None:
    compositor = make(seats=2)
    with listening_to(compositor) as listening:
        compositor.say(IDLED, seat=0)
        listening.until(0.0)
        listening.clock.now_s += 10
        compositor.say(IDLED, seat=1)
        listening.until(1.0)
        compositor.say(RESUMED, seat=0)
        listening.until(0.0)


def test_a_compositor_that_starts_anew_is_asked_again(make: MakeCompositor) -> None:
    compositor = make()
    with listening_to(compositor) as listening:
        compositor.say(IDLED)
        listening.until(1.0)
        compositor.drop()
        assert compositor.ready.wait(PATIENCE_S)
        listening.until(0.0)


def test_a_seat_that_comes_later_is_asked_about_too(make: MakeCompositor) -> None:
    compositor = make()
    with listening_to(compositor):
        compositor.ready.clear()
        compositor.add_seat()
        assert compositor.ready.wait(PATIENCE_S)


@pytest.mark.parametrize(("more", "problem"), [({"notifier": 0}, "no ext_idle_notifier_v1"), ({"seats": 0}, "no seat")])
def test_a_compositor_that_cannot_tell(make: MakeCompositor, more: dict[str, int], problem: str) -> None:
    listening = Listening(make(**more).environment)
    listening.until(problem)
    listening.stop()


def test_a_seat_that_goes_is_not_in_use_for_ever(make: MakeCompositor) -> None:
    compositor = make(seats=2)
    with listening_to(compositor) as listening:
        compositor.say(IDLED, seat=0)
        listening.until(0.0)
        compositor.ready.clear()
        compositor.remove_global(2)
        assert compositor.ready.wait(PATIENCE_S)  # it was asked anew, about the other seat alone
        compositor.say(IDLED)
        listening.until(1.0)


def test_another_thing_that_goes_changes_nothing(make: MakeCompositor) -> None:
    compositor = make()
    with listening_to(compositor) as listening:
        compositor.ready.clear()
        compositor.remove_global(2)  # the notifier
        compositor.say(IDLED)
        listening.until(1.0)
        assert not compositor.ready.is_set()


def test_a_removal_that_names_nothing_is_unreadable(make: MakeCompositor) -> None:
    compositor = make()
    with listening_to(compositor):
        compositor.ready.clear()
        compositor.send_raw(struct.pack("=II", 2, 8 << 16 | 1))
        assert compositor.ready.wait(PATIENCE_S)  # it was asked anew


def test_garbage_is_unreadable(make: MakeCompositor) -> None:
    compositor = make()
    with listening_to(compositor) as listening:
        compositor.ready.clear()
        compositor.send_raw(struct.pack("=II", 2, 3 << 16))
        assert compositor.ready.wait(PATIENCE_S)  # it was asked anew
        compositor.send_raw(struct.pack("=II", 1, 8 << 16))
        listening.until(0.0)


def test_no_wayland_session(tmp_path: Path) -> None:
    for environment, problem in (
        ({}, "no Wayland"),
        ({"WAYLAND_DISPLAY": "wayland-0"}, "XDG_RUNTIME_DIR"),
        ({"WAYLAND_DISPLAY": str(tmp_path / "gone")}, "cannot be reached"),
    ):
        listening = Listening(environment)
        listening.until(problem)
        listening.stop()
