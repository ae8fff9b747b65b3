"""What computes makes way on the real scheduler, where it can be told to."""

from __future__ import annotations

import os
import platform
import sys
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import TypeVar

import pytest

from agent.stage import affinity, slices

T = TypeVar("T")
USUAL_NS = slices.slice_ns()


def in_thread(act: Callable[[], T]) -> T:
    """Threads of their own: what a test asks for must not stay with the others."""
    found: SimpleQueue[T] = SimpleQueue()
    thread = threading.Thread(target=lambda: found.put(act()))
    thread.start()
    thread.join()
    return found.get_nowait()


@pytest.fixture
def has_slices() -> None:
    def asked() -> int:
        slices.ask_for_long()
        return slices.slice_ns()

    if in_thread(asked) != slices.LONG_NS:
        pytest.skip("This kernel has no slices of a thread's own (Linux 6.12 and newer have).")


@pytest.fixture
def cores() -> set[int]:
    return os.sched_getaffinity(0) if sys.platform == "linux" else set()


@pytest.mark.usefixtures("has_slices")
def test_computing_threads_wait_for_all_others_and_so_do_those_they_start(cores: set[int]) -> None:
    def compute() -> tuple[int, int, int]:
        affinity.compute_here(cores)
        started = in_thread(slices.slice_ns)
        own = slices.slice_ns()
        affinity.stay_beside(cores)
        return own, started, slices.slice_ns()

    own, started, afterwards = in_thread(compute)
    assert own == started == slices.LONG_NS > USUAL_NS == afterwards
    assert slices.slice_ns() == USUAL_NS, "other threads keep theirs"


@pytest.mark.usefixtures("has_slices")
def test_a_threads_priority_stays() -> None:
    def gentle() -> int:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 7)
        slices.ask_for_long()
        return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    assert in_thread(gentle) == 7


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has such policies")
def test_another_policy_is_left_alone() -> None:
    def chosen() -> tuple[int, int]:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        slices.ask_for_long()
        return os.sched_getscheduler(0), slices.slice_ns()

    assert in_thread(chosen) == (os.SCHED_IDLE, 0)


@pytest.mark.parametrize("machine", ["armv7l", "", "AMD64"])
def test_machines_without_known_numbers_are_left_alone(monkeypatch: pytest.MonkeyPatch, machine: str) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    slices.ask_for_long()
    assert slices.slice_ns() == 0
