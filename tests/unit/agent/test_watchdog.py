from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import dataclass

import pytest

from agent.watchdog import INFERENCE_S, SILENT_LOOKS, Pulse, stall_of, wants_processor

SECOND = 10**9


@dataclass
class Counted:
    is_inside: bool = False
    moved_ns: int = 0


@pytest.mark.parametrize(
    "gate",
    [
        Counted(),
        Counted(is_inside=True, moved_ns=999 * SECOND),
    ],
    ids=["nothing to do for long", "computing"],
)
def test_a_child_that_gets_on_is_left_alone(gate: Counted) -> None:
    assert stall_of(gate, 1000 * SECOND) == ""


def test_a_child_that_lives_and_does_not_finish_is_given_up() -> None:
    gate = Counted(is_inside=True, moved_ns=0)
    assert "did not end" in stall_of(gate, int((INFERENCE_S + 1) * SECOND))


def test_a_child_that_is_silent_for_many_looks_is_frozen() -> None:
    pulse = Pulse()
    assert [pulse.look(0) for _ in range(100)] == [0] * 100, "it is loading"
    for beat_ns in range(1, 50):
        pulse.look(beat_ns * SECOND)
    silent = [pulse.look(49 * SECOND) for _ in range(SILENT_LOOKS)]
    assert silent == list(range(1, SILENT_LOOKS + 1))
    assert pulse.is_frozen(starved=False)
    assert not pulse.is_frozen(starved=True), "it only gets no processor"
    pulse.look(50 * SECOND)
    assert not pulse.is_frozen(starved=False)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_process_that_is_stopped_wants_no_processor_and_a_busy_one_does() -> None:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        try:
            assert wants_processor(process.pid)
            process.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, process.pid, os.WSTOPPED)
            assert not wants_processor(process.pid)
        finally:
            process.kill()
    assert not wants_processor(process.pid)
