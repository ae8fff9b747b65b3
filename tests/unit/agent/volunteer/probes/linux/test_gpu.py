from __future__ import annotations

from pathlib import Path

import pytest

from agent.volunteer.probes.base import Absent, Unreadable
from agent.volunteer.probes.linux.gpu import FULL_SCAN_S, Client, GpuClients, OtherGpu, busiest_percent, parse_fdinfo

I915 = """pos:\t0
flags:\t02100002
drm-driver:\ti915
drm-client-id:\t{client}
drm-pdev:\t0000:00:02.0
drm-total-system0:\t64 MiB
drm-resident-system0:\t{resident} KiB
drm-active-system0:\t0
drm-engine-render:\t{render} ns
drm-engine-video:\t{video} ns
drm-engine-capacity-video:\t2
"""
XE = """drm-driver:\txe
drm-client-id:\t7
drm-pdev:\t0000:00:02.0
drm-cycles-rcs:\t{cycles}
drm-total-cycles-rcs:\t{total}
drm-resident-gtt:\t{gtt} KiB
"""
AMD = "drm-driver:\tamdgpu\ndrm-client-id:\t3\ndrm-pdev:\t0000:03:00.0\ndrm-memory-vram:\t2048 KiB\n"


class Proc:
    """A `/proc` of processes with files, some of them of a GPU."""

    def __init__(self, root: Path) -> None:
        self.proc, self.device = root / "proc", root / "dri"
        self.proc.mkdir()
        self.device.mkdir()
        (self.device / "renderD128").touch()
        self.now_s = 0.0

    def file(self, pid: int, number: int, fdinfo: str, *, of_gpu: bool = True) -> None:
        folder = self.proc / str(pid)
        for name in ("fd", "fdinfo"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        link = folder / "fd" / str(number)
        if not link.is_symlink():
            link.symlink_to(self.device / "renderD128" if of_gpu else "/dev/null")
        (folder / "fdinfo" / str(number)).write_text(fdinfo)

    def clients(self) -> GpuClients:
        return GpuClients(lambda: self.now_s, proc=self.proc, devices=[self.device])

    def load(self, own: frozenset[int] = frozenset()) -> OtherGpu:
        return OtherGpu(self.clients(), lambda: self.now_s, lambda: own)


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    return Proc(tmp_path)


def i915(client: int = 1, *, render: int = 0, video: int = 0, resident: int = 0) -> str:
    return I915.format(client=client, render=render, video=video, resident=resident)


def test_a_file_says_engine_time_and_memory() -> None:
    parsed = parse_fdinfo(i915(5, render=100, video=7, resident=512))
    assert parsed is not None
    assert parsed[0] == "0000:00:02.0/5"
    client = parsed[1]
    assert client.busy_ns == {"render": 100, "video": 7}
    assert client.capacity == {"video": 2}
    assert client.resident_bytes == {"system0": 512 << 10}


def test_drivers_name_their_fields_differently() -> None:
    parsed = parse_fdinfo(XE.format(cycles=5, total=10, gtt=4))
    assert parsed is not None
    assert (parsed[1].cycles, parsed[1].resident_bytes) == ({"rcs": (5, 10)}, {"gtt": 4096})
    parsed = parse_fdinfo(AMD)
    assert parsed is not None
    assert parsed[1].resident_bytes == {"vram": 2 << 20}


@pytest.mark.parametrize("text", ["", "pos:\t0\nflags:\t02\n", "drm-driver:\ti915\n", "\0\xff:::"])
def test_other_files_are_no_clients(text: str) -> None:
    assert parse_fdinfo(text) is None


def test_numbers_that_make_no_sense_are_left_out() -> None:
    parsed = parse_fdinfo("drm-client-id:\t1\ndrm-engine-render:\t-5 ns\ndrm-engine-copy:\tmany\n"
                          f"drm-resident-gtt:\t{'9' * 40} KiB\ndrm-cycles-rcs:\t3\n")  # fmt: skip
    assert parsed is not None
    assert parsed[1] == Client("", set())


def test_others_keep_the_gpu_busy(proc: Proc) -> None:
    probe = proc.load(own=frozenset({20}))
    proc.file(10, 3, i915(1))
    proc.file(20, 3, i915(2))
    with pytest.raises(Unreadable, match="two reads"):
        probe.read()
    proc.now_s = 2.0
    proc.file(10, 3, i915(1, render=500_000_000, video=2_000_000_000))
    proc.file(20, 3, i915(2, render=2_000_000_000))
    assert probe.read() == {"other_gpu_percent": 50.0}  # of two video engines; our own render does not count


def test_two_processes_with_one_client_count_once_and_a_shared_one_is_ours(proc: Proc) -> None:
    proc.file(10, 3, i915(1))
    proc.file(11, 9, i915(1))
    proc.file(11, 4, "pos:\t0\n", of_gpu=False)
    clients = proc.clients().read()
    assert {key: client.pids for key, client in clients.items()} == {"0000:00:02.0/1": {10, 11}}
    probe = proc.load(own=frozenset({11}))
    with pytest.raises(Unreadable):
        probe.read()
    proc.now_s = 1.0
    for pid, number in ((10, 3), (11, 9)):
        proc.file(pid, number, i915(1, render=10**9))
    assert probe.read() == {"other_gpu_percent": 0.0}


def test_a_program_that_starts_is_found_at_once_and_a_new_file_of_an_old_one_in_a_while(proc: Proc) -> None:
    clients = proc.clients()
    proc.file(10, 1, "pos:\t0\n", of_gpu=False)
    assert clients.read() == {}
    proc.file(11, 3, i915(1))
    assert list(clients.read()) == ["0000:00:02.0/1"]
    proc.file(10, 3, i915(2))
    assert len(clients.read()) == 1
    proc.now_s = FULL_SCAN_S
    assert len(clients.read()) == 2
    (proc.proc / "11" / "fdinfo" / "3").unlink()
    assert list(clients.read()) == ["0000:00:02.0/2"]


def test_cycles_are_a_share_of_all_cycles() -> None:
    def at(cycles: int, total: int) -> dict[str, Client]:
        parsed = parse_fdinfo(XE.format(cycles=cycles, total=total, gtt=0))
        assert parsed is not None
        return {parsed[0]: parsed[1]}

    assert busiest_percent(at(100, 1000), at(400, 2000), 2.0) == 30.0
    assert busiest_percent(at(400, 2000), at(100, 3000), 2.0) == 0.0  # the driver was reset
    assert busiest_percent(at(100, 1000), at(400, 1000), 2.0) == 0.0
    assert busiest_percent({}, at(400, 1000), 2.0) == 0.0


def test_a_pc_without_gpu_is_absent_and_one_nobody_tells_of_unreadable(proc: Proc, tmp_path: Path) -> None:
    with pytest.raises(Absent):
        GpuClients(lambda: 0.0, proc=proc.proc, devices=[tmp_path / "none"]).read()
    with pytest.raises(Unreadable, match="no program"):
        proc.load().read()


def test_a_gpu_whose_last_program_ended_is_at_rest(proc: Proc) -> None:
    probe = proc.load()
    proc.file(10, 3, i915(1))
    with pytest.raises(Unreadable, match="two reads"):
        probe.read()
    (proc.proc / "10" / "fdinfo" / "3").unlink()
    for proc.now_s in (2.0, 4.0):
        assert probe.read() == {"other_gpu_percent": 0.0}
    proc.now_s = FULL_SCAN_S
    proc.file(10, 3, i915(2, render=10**9))  # what it did before it was found is not of the last seconds
    assert probe.read() == {"other_gpu_percent": 0.0}
    proc.now_s += 2.0
    proc.file(10, 3, i915(2, render=2 * 10**9))
    assert probe.read() == {"other_gpu_percent": 50.0}


def test_two_reads_at_once_say_the_same(proc: Proc) -> None:
    probe = proc.load()
    proc.file(10, 3, i915(1))
    with pytest.raises(Unreadable):
        probe.read()
    proc.now_s = 1.0
    proc.file(10, 3, i915(1, render=400_000_000))
    assert probe.read() == probe.read() == {"other_gpu_percent": 40.0}
