from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from agent.volunteer import device_use, proof
from agent.volunteer.memory import DeviceMemory

GPU = DeviceMemory("unified", address="0000:00:02.0")
GIB = 1 << 30


@dataclass
class System:
    """What the operating system says."""

    process_bytes: int = 100
    stage_bytes: int = GIB
    others_bytes: int = GIB
    slept: int = 0
    now_s: float = 0.0

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        self.slept += 1


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch) -> System:
    system = System()
    monkeypatch.setattr(device_use, "private_bytes", lambda pid: system.process_bytes)
    monkeypatch.setattr(device_use, "stage_bytes_now", lambda pid, device: system.process_bytes + system.stage_bytes)
    monkeypatch.setattr(device_use, "held_on_device", lambda device: system.stage_bytes + system.others_bytes)
    return system


def missing(system: System, *taken: proof.Taken) -> str:
    return proof.missing(taken, clock=lambda: system.now_s, sleep=system.sleep)


def end(system: System) -> None:
    system.process_bytes = system.stage_bytes = 0


def test_a_stage_that_is_gone_with_all_it_held_is_back_at_once(system: System) -> None:
    taken = proof.take_stock(7, "GPU.0", GPU)
    assert (taken.stage_bytes, taken.all_bytes) == (GIB, 2 * GIB)
    end(system)
    assert missing(system, taken) == ""
    assert system.slept == 0


@pytest.mark.parametrize(
    "keep",
    [lambda system: setattr(system, "process_bytes", 5), lambda system: setattr(system, "others_bytes", 2 * GIB)],
    ids=["the process", "its memory on the device"],
)
def test_what_does_not_come_back_is_said_after_two_seconds(system: System, keep: Callable[[System], None]) -> None:
    taken = proof.take_stock(7, "GPU.0", GPU)
    end(system)
    keep(system)
    assert "on GPU.0" in missing(system, taken)
    assert system.now_s == pytest.approx(proof.PATIENCE_S, abs=0.1)


def test_a_driver_may_take_a_moment(system: System) -> None:
    taken = proof.take_stock(7, "GPU.0", GPU)
    system.process_bytes = 0

    def sleep(seconds: float) -> None:
        system.sleep(seconds)
        system.stage_bytes = 0

    assert proof.missing([taken], clock=lambda: system.now_s, sleep=sleep) == ""
    assert system.slept == 1


def test_within_five_percent_is_back(system: System) -> None:
    taken = proof.take_stock(7, "GPU.0", GPU)
    end(system)
    system.others_bytes = GIB + GIB // 25
    assert missing(system, taken) == ""


def test_on_a_cpu_the_end_of_the_process_is_the_proof(system: System) -> None:
    taken = proof.take_stock(7, "CPU", DeviceMemory())
    assert taken.stage_bytes == 0
    end(system)
    system.others_bytes = 9 * GIB
    assert missing(system, taken) == ""
