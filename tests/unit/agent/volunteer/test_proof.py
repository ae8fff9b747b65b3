from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from agent.volunteer import device_use, proof
from agent.volunteer.memory import DeviceMemory

GPU = DeviceMemory("unified", address="0000:00:02.0")
GIB = 1 << 30
STAGE, OTHER = 7, 8


@dataclass
class System:
    """What the operating system says."""

    process_bytes: int = 0
    stage_bytes: int = 0
    others_bytes: int = GIB
    slept: int = 0
    now_s: float = 0.0

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        self.slept += 1

    def held(self, address: str) -> device_use.Held:
        if not address:
            return []
        return [(frozenset({STAGE}), self.stage_bytes), (frozenset({OTHER}), self.others_bytes)]


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch) -> System:
    system = System()
    monkeypatch.setattr(device_use, "private_bytes", lambda pid: system.process_bytes)
    monkeypatch.setattr(device_use, "_held", system.held)
    return system


TAKEN = proof.Taken(STAGE, "GPU.0", GPU, GIB)


def missing(system: System, *taken: proof.Taken) -> str:
    return proof.missing(taken, clock=lambda: system.now_s, sleep=system.sleep)


def test_a_stage_that_is_gone_with_all_it_held_is_back_at_once(system: System) -> None:
    assert missing(system, TAKEN) == ""
    assert system.slept == 0


@pytest.mark.parametrize(
    "keep",
    [lambda system: setattr(system, "process_bytes", 5), lambda system: setattr(system, "stage_bytes", GIB)],
    ids=["the process", "its memory on the device"],
)
def test_what_does_not_come_back_is_said_after_two_seconds(system: System, keep: Callable[[System], None]) -> None:
    keep(system)
    assert "on GPU.0" in missing(system, TAKEN)
    assert system.now_s == pytest.approx(proof.PATIENCE_S, abs=0.1)


def test_a_driver_may_take_a_moment(system: System) -> None:
    system.stage_bytes = GIB

    def sleep(seconds: float) -> None:
        system.sleep(seconds)
        system.stage_bytes = 0

    assert proof.missing([TAKEN], clock=lambda: system.now_s, sleep=sleep) == ""
    assert system.slept == 1


@pytest.mark.parametrize(("left_bytes", "is_back"), [(GIB // 25, True), (GIB // 15, False)])
def test_within_five_percent_is_back(system: System, left_bytes: int, is_back: bool) -> None:
    system.stage_bytes = left_bytes
    assert (missing(system, TAKEN) == "") is is_back


def test_without_a_measure_of_what_it_held_nothing_may_be_left(system: System) -> None:
    system.stage_bytes = 1
    assert missing(system, proof.Taken(STAGE, "GPU.0", GPU, 0))


def test_what_the_owners_programs_take_meanwhile_is_no_fault(system: System) -> None:
    system.others_bytes = 9 * GIB
    assert missing(system, TAKEN) == ""


def test_on_a_cpu_the_end_of_the_process_is_the_proof(system: System) -> None:
    system.stage_bytes = 9 * GIB
    assert missing(system, proof.Taken(STAGE, "CPU", DeviceMemory(), 0)) == ""
    system.process_bytes = 100
    assert "on CPU" in missing(system, proof.Taken(STAGE, "CPU", DeviceMemory(), 0))
