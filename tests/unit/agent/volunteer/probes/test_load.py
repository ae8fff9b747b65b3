from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from agent.volunteer.facts import Memory
from agent.volunteer.probes.base import Absent, Unreadable
from agent.volunteer.probes.load import (
    ExclusiveApps,
    MainMemory,
    OtherCpu,
    own_cpu_s,
    own_pids,
    program_key,
    read_disk,
    read_pressure,
    running_names,
    system_cpu_s,
)  # fmt: skip
from tests.support.patience import PATIENCE_S


class Times:
    """Seconds that the whole PC and our own processes have computed."""

    def __init__(self) -> None:
        self.busy_s = self.all_s = self.own_s = 0.0

    def probe(self) -> OtherCpu:
        return OtherCpu(lambda: (self.busy_s, self.all_s), lambda: self.own_s)


@pytest.fixture
def times() -> Times:
    return Times()


def test_our_own_work_is_not_others_work(times: Times) -> None:
    probe = times.probe()
    with pytest.raises(Unreadable):
        probe.read()
    times.busy_s, times.all_s, times.own_s = 8.0, 10.0, 6.0
    assert probe.read() == {"other_cpu_percent": 20.0}
    times.busy_s, times.all_s, times.own_s = 16.0, 20.0, 14.0
    assert probe.read() == {"other_cpu_percent": 0.0}


def test_a_child_that_ended_makes_others_no_busier_than_they_were(times: Times) -> None:
    probe = times.probe()
    times.own_s = 50.0
    with pytest.raises(Unreadable):
        probe.read()
    times.busy_s, times.all_s, times.own_s = 5.0, 10.0, 1.0
    assert probe.read() == {"other_cpu_percent": 50.0}


def test_two_reads_at_once_say_the_same_and_a_clock_that_stands_still_nothing(times: Times) -> None:
    probe = times.probe()
    with pytest.raises(Unreadable):
        probe.read()
    with pytest.raises(Unreadable, match="stands still"):
        probe.read()
    times.busy_s, times.all_s = 5.0, 10.0
    assert probe.read() == {"other_cpu_percent": 50.0}
    times.busy_s, times.all_s = 5.1, 10.1
    assert probe.read() == {"other_cpu_percent": 50.0}


def test_the_tree_has_our_children_and_what_they_used() -> None:
    burn = "import time\nwhile time.process_time() < 0.25: pass\nprint('done', flush=True)\ninput()"
    before_s = own_cpu_s()
    with subprocess.Popen([sys.executable, "-c", burn], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline().strip() == b"done"
        assert {child.pid, os.getpid()} <= own_pids()
        assert own_cpu_s() - before_s >= 0.2
        child.communicate(b"\n", timeout=PATIENCE_S)
    busy_s, all_s = system_cpu_s()
    assert 0 < busy_s < all_s
    if sys.platform != "win32":
        assert own_cpu_s() - before_s >= 0.2  # what a child used stays with us


def test_the_tree_has_the_children_that_other_threads_started() -> None:
    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)

    with ThreadPoolExecutor(1) as pool, pool.submit(start).result() as child:
        assert child.pid in own_pids()
        child.communicate(b"\n", timeout=PATIENCE_S)


def test_exclusive_programs_are_found_by_file_name() -> None:
    apps = ExclusiveApps(lambda: ["Steam.exe", "kworker/0:1", "obs", ""])
    assert apps.read() == {"exclusive": ()}
    apps.look_for(["steam", "OBS", "blender", "", ".exe"])
    assert apps.read() == {"exclusive": ("obs", "steam")}
    apps.look_for([])
    assert apps.read() == {"exclusive": ()}


def test_ten_thousand_exclusive_programs_cost_one_look() -> None:
    looks: list[int] = []

    def running() -> list[str]:
        looks.append(1)
        return ["p7"]

    apps = ExclusiveApps(running)
    apps.look_for(f"p{number}" for number in range(10_000))
    assert apps.read() == {"exclusive": ("p7",)}
    assert len(looks) == 1


def test_this_program_runs() -> None:
    assert program_key(Path(sys.executable).resolve().name)[:6] in {program_key(name)[:6] for name in running_names()}


@pytest.mark.parametrize(
    ("text", "percent"),
    [
        ("some avg10=12.34 avg60=0.00 avg300=0.00 total=1\nfull avg10=1.00 avg60=0.00 avg300=0.00 total=1\n", 12.34),
        ("", None),
        ("some avg10=nan avg60=0.00\n", None),
        ("some avg10=1e308\n", None),
        ("some nonsense\n", None),
    ],
)
def test_pressure_is_a_percentage_or_unknown(tmp_path: Path, text: str, percent: float | None) -> None:
    path = tmp_path / "memory"
    path.write_text(text)
    assert read_pressure(path) == percent
    assert read_pressure(tmp_path / "absent") is None


def test_memory_has_the_systems_own_alarm_beside_it(tmp_path: Path) -> None:
    seen = MainMemory(tmp_path / "absent", low=lambda: True).read()["memory"]
    assert seen == Memory(seen.total_bytes, seen.available_bytes, low=True, pressure_percent=None)
    assert 0 < seen.available_bytes <= seen.total_bytes


def test_the_disk_of_the_model_files(tmp_path: Path) -> None:
    assert read_disk(tmp_path)["disk_free_bytes"] > 0
    with pytest.raises(Absent):
        read_disk(tmp_path / "not yet")
