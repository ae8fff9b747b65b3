from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from agent.volunteer import device_use
from agent.volunteer.device_memory import luid_address, pci_address, read_device_memory
from agent.volunteer.facts import Memory
from agent.volunteer.memory import DeviceMemory
from agent.volunteer.memory_book import Load, MemoryBook
from agent.volunteer.policy import Policy
from tests.support.patience import PATIENCE_S

GIB = 1 << 30
PC = Memory(16 * GIB, 12 * GIB)
IGPU = DeviceMemory("unified", total_bytes=7 * GIB, address="0000:00:02.0", driver="31.0")


@pytest.fixture(autouse=True)
def pc(monkeypatch: pytest.MonkeyPatch) -> None:
    """16 GiB, 12 of them available, nothing loaded."""
    monkeypatch.setattr(device_use, "main_memory", lambda: PC)
    monkeypatch.setattr(device_use, "held_by_stages", lambda: 0)
    monkeypatch.setattr(device_use, "held_on_device", lambda device: GIB if device.address else 0)


def book(folder: Path, *, limit: int = 0, unattended: bool = False, max_percent: float = 90.0) -> MemoryBook:
    policy = Policy(unattended=unattended, memory_max_percent=max_percent)
    made = MemoryBook(folder, lambda: policy, limit_bytes=limit)
    made.know({"GPU.0": IGPU})
    return made


def load(device: str = "CPU", *, weights: int = GIB, cache: int = 0, largest: int = 0) -> Load:
    return Load("llama", device, weights, cache, largest)


def test_the_owners_part_depends_on_whether_anybody_sits_there(tmp_path: Path) -> None:
    assert book(tmp_path).budget().size_bytes == 8 * GIB  # the floor is 4 GiB, or a quarter
    assert book(tmp_path, unattended=True).budget().size_bytes == 11 * GIB


def test_policy_and_owner_limit_all_stages_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert book(tmp_path, max_percent=25).budget().size_bytes == 4 * GIB
    assert book(tmp_path, limit=2 * GIB).budget().size_bytes == 2 * GIB
    monkeypatch.setattr(device_use, "held_by_stages", lambda: GIB)
    assert book(tmp_path, limit=2 * GIB).budget().size_bytes == GIB


def test_an_integrated_gpu_has_its_own_ceiling(tmp_path: Path) -> None:
    assert book(tmp_path).budget("GPU.0").size_bytes == int(7 * GIB * 0.9) - GIB
    assert book(tmp_path).budget("GPU.1").size_bytes == 8 * GIB  # a device nobody knows uses main memory


def test_the_console_plans_with_less_than_the_budget(tmp_path: Path) -> None:
    pages = book(tmp_path)
    assert pages.offer_bytes() == int(8 * GIB / 1.15)
    assert pages.refusal(load(weights=pages.offer_bytes() - 128_000_000)) == ""
    assert "owner" in pages.refusal(load(weights=8 * GIB))


def test_a_stage_that_would_only_swap_is_refused_before_it_loads(tmp_path: Path) -> None:
    pages = book(tmp_path)
    assert "while they load" in pages.refusal(load("GPU.1", weights=5 * GIB))
    assert pages.refusal(load("CPU", weights=5 * GIB)) == ""


def test_what_a_stage_took_is_remembered_beyond_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_use, "stage_bytes_now", lambda pid, device: 6 * GIB)
    pages = book(tmp_path)
    assert pages.refusal(load(weights=4 * GIB)) == ""
    pages.learn(load(weights=4 * GIB, cache=GIB), pid=1)
    again = book(tmp_path)
    assert "may be used" in again.refusal(load(weights=6 * GIB))
    assert again.offer_bytes() < pages.budget().size_bytes / 1.3
    assert again.offer_bytes("GPU.0") == int((int(7 * GIB * 0.9) - GIB) / 1.15)


def test_a_stage_that_is_gone_teaches_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_use, "stage_bytes_now", lambda pid, device: 0)
    book(tmp_path).learn(load(), pid=1)
    assert not (tmp_path / "memory.json").exists()


@pytest.mark.parametrize("content", [b"", b"[{}]", b"\xff\xfe", b'[["a"]]', b"[" * 2_000_000])
def test_a_damaged_file_is_begun_anew(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "memory.json").write_bytes(content)
    assert book(tmp_path).offer_bytes() == int(8 * GIB / 1.15)


def test_a_folder_that_cannot_be_written_costs_only_the_memory_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_use, "stage_bytes_now", lambda pid, device: 6 * GIB)
    pages = book(tmp_path / "gone")
    pages.learn(load(weights=4 * GIB), pid=1)
    assert pages.offer_bytes() < 8 * GIB / 1.3


# What OpenVINO says


class FakeCore:
    """A runtime with one device; properties are values, or errors to raise."""

    def __init__(self, **properties: object) -> None:
        self._properties = {"SUPPORTED_PROPERTIES": dict.fromkeys(properties, "RO"), **properties}

    def get_property(self, device: str, name: str) -> object:
        value = self._properties.get(name, RuntimeError(f"no {name}"))
        if isinstance(value, Exception):
            raise value
        return value


PCI = SimpleNamespace(domain=0, bus=0, device=2, function=0)


def test_an_integrated_gpu_uses_main_memory() -> None:
    core = FakeCore(
        DEVICE_TYPE="Type.INTEGRATED", GPU_DEVICE_TOTAL_MEM_SIZE=7 * GIB, GPU_DEVICE_MAX_ALLOC_MEM_SIZE=4 * GIB,
        DEVICE_PCI_INFO=PCI, GPU_DRIVER_VERSION="31.0",
    )  # fmt: skip
    assert read_device_memory(core, "GPU.0") == DeviceMemory("unified", 7 * GIB, 4 * GIB, "0000:00:02.0", "31.0")


def test_a_graphics_card_does_not() -> None:
    assert read_device_memory(FakeCore(DEVICE_TYPE="Type.DISCRETE"), "GPU").kind == "own"


def test_an_npu_is_part_of_the_processor() -> None:
    core = FakeCore(NPU_DEVICE_TOTAL_MEM_SIZE=GIB, GPU_DEVICE_MAX_ALLOC_MEM_SIZE=5)
    assert read_device_memory(core, "NPU") == DeviceMemory("unified", GIB)


def test_a_processor_has_main_memory_and_is_not_even_asked() -> None:
    assert read_device_memory(FakeCore(), "CPU") == DeviceMemory()


def test_a_driver_that_refuses_everything_is_feared_to_use_main_memory() -> None:
    core = FakeCore(
        SUPPORTED_PROPERTIES=RuntimeError("reset"), DEVICE_TYPE="Type.DISCRETE", GPU_DEVICE_TOTAL_MEM_SIZE=GIB
    )
    assert read_device_memory(core, "GPU") == DeviceMemory("unified")


@pytest.mark.parametrize("size", [-1, 0, 2**60, "8 GiB", None, True, RuntimeError("lost")])
def test_a_size_that_cannot_be_is_unknown(size: object) -> None:
    assert read_device_memory(FakeCore(GPU_DEVICE_TOTAL_MEM_SIZE=size), "GPU").total_bytes == 0


def test_devices_have_the_address_that_the_system_knows_them_by() -> None:
    assert pci_address(SimpleNamespace(domain=1, bus=0xA0, device=31, function=7)) == "0001:a0:1f.7"
    assert pci_address("0000:00:02.0") == pci_address(None) == ""
    assert luid_address("c5d1000000000000") == "000000000000d1c5"
    assert luid_address("0000000000000000") == luid_address("xyz") == luid_address(None) == ""


# What processes hold


def test_only_memory_of_its_own_counts_as_a_processs() -> None:
    hold = "data = bytearray(64 << 20)\nprint('held', flush=True)\ninput()"
    with subprocess.Popen([sys.executable, "-c", hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline().strip() == b"held"
        assert 64 << 20 <= device_use.private_bytes(child.pid) < 256 << 20
        assert device_use.stage_bytes_now(child.pid, DeviceMemory()) >= 64 << 20
        child.communicate(b"\n", timeout=PATIENCE_S)
    assert device_use.private_bytes(child.pid) == 0
    assert device_use.stage_bytes_now(child.pid, DeviceMemory()) == 0


@pytest.mark.skipif(sys.platform != "linux", reason="fdinfo is Linux's")
def test_memory_on_a_device_counts_by_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from agent.volunteer.probes.linux import gpu

    own, device = os.getpid(), tmp_path / "dri"
    device.mkdir()
    (device / "renderD128").touch()
    for pid, client, kib in ((own, 1, 1024), (own + 1, 1, 1024), (own + 1, 2, 512), (own + 1, 3, 64)):
        address = "0000:00:02.0" if client < 3 else "0000:03:00.0"
        for name in ("fd", "fdinfo"):
            (tmp_path / "proc" / str(pid) / name).mkdir(parents=True, exist_ok=True)
        (tmp_path / "proc" / str(pid) / "fd" / str(client)).symlink_to(device / "renderD128")
        text = f"drm-client-id:\t{client}\ndrm-pdev:\t{address}\ndrm-resident-system0:\t{kib} KiB\n"
        (tmp_path / "proc" / str(pid) / "fdinfo" / str(client)).write_text(text)
    clients = gpu.GpuClients
    monkeypatch.setattr(
        device_use, "GpuClients", lambda clock: clients(clock, proc=tmp_path / "proc", devices=[device])
    )
    said = [size for _, size in device_use._held("0000:00:02.0")]
    assert sorted(said) == [512 << 10, 1 << 20]
    monkeypatch.setattr(device_use, "private_bytes", lambda pid: 5)
    assert device_use.stage_bytes_now(own, IGPU) == 5 + (1 << 20)
    assert device_use.held_by_process(own, IGPU) == 1 << 20
    assert device_use._held("") == []


def test_what_a_stage_held_on_its_device_is_known_until_its_process_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_use, "stage_bytes_now", lambda pid, device: 2 * GIB)
    monkeypatch.setattr(device_use, "held_by_process", lambda pid, device: GIB + pid)
    own, gone, books = os.getpid(), 1 << 30, book(tmp_path)
    for pid in (own, gone):
        books.learn(load("GPU.0"), pid)
        assert books.device_bytes_when_loaded(pid) == GIB + pid
    books.learn(load("GPU.0"), own)
    assert (books.device_bytes_when_loaded(own), books.device_bytes_when_loaded(gone)) == (GIB + own, 0)


def test_a_correction_is_plain_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_use, "stage_bytes_now", lambda pid, device: 2 * GIB)
    book(tmp_path).learn(load("GPU.0", weights=GIB), pid=1)
    (said,) = msgspec.json.decode((tmp_path / "memory.json").read_bytes())
    assert (said["library"], said["device"], said["driver"]) == ("llama", "GPU.0", "31.0")
