from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from agent.watchdog import INFERENCE_S, SILENT_LOOKS, Pulse, stall_of, waits_for_the_pc

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
    assert not pulse.is_frozen(starved=True), "it only waits for the PC"
    pulse.look(50 * SECOND)
    assert not pulse.is_frozen(starved=False)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_process_that_is_stopped_waits_for_nothing_and_a_busy_one_for_a_processor() -> None:
    busy = "print(flush=True)\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", busy], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            assert waits_for_the_pc(process.pid)
            process.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, process.pid, os.WSTOPPED)
            assert not waits_for_the_pc(process.pid)
        finally:
            process.kill()
    assert not waits_for_the_pc(process.pid)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(("states", "waits"), [("SD", True), ("RS", True), ("SST", False), ("", False)])
def test_who_waits_for_the_disk_waits_for_the_pc(
    states: str, waits: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, state in enumerate(states):
        stat = tmp_path / f"proc/7/task/{number}/stat"
        stat.parent.mkdir(parents=True)
        stat.write_text(f"{number} (a (strange) R name) {state} 1 7 7")
    monkeypatch.setattr("agent.watchdog.PROC", tmp_path / "proc")
    assert waits_for_the_pc(7) == waits
