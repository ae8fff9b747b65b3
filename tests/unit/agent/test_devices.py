from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest

from agent.devices import (
    ASK_AGAIN_S,
    NONE_AGAIN_S,
    DeviceList,
    FoundDevice,
    Runtime,
    ask_devices,
    find_devices,
    tell_runtime,
)
from agent.introduction import offered
from agent.settings import AgentSettings, load_settings
from agent.stage.priority import LEAST_NICE
from agent.volunteer.memory import DeviceMemory
from tests.support.hand_clock import HandClock

GIB = 1 << 30


class FakeCore:
    """An OpenVINO runtime with devices of every mood: properties are values, or errors to raise."""

    properties: ClassVar[dict[str, dict[str, Any]]] = {}

    @property
    def available_devices(self) -> list[str]:
        return list(self.properties)

    def get_property(self, device: str, name: str) -> Any:
        value = self.properties[device].get(name, RuntimeError(f"no {name}\nlong trace"))
        if isinstance(value, Exception):
            raise value
        return value


@pytest.fixture
def core(monkeypatch: pytest.MonkeyPatch) -> type[FakeCore]:
    monkeypatch.setattr("openvino.Core", FakeCore)
    monkeypatch.setattr(FakeCore, "properties", {"CPU": {"FULL_DEVICE_NAME": "A processor"}})
    return FakeCore


def test_this_pc_has_a_cpu_that_runs_both_engines() -> None:
    found = find_devices()
    assert found[0].name == "CPU"
    assert found[0].engines == ["paged", "stateful"]
    assert found[0].memory == DeviceMemory("main")


def test_a_process_of_its_own_says_the_same_and_keeps_openvino_out_of_this_one() -> None:
    runtime = ask_devices()
    assert runtime.devices == find_devices()
    assert "-" not in runtime.openvino


def test_a_runtime_that_crashes_or_hangs_costs_the_devices_only(
    monkeypatch: pytest.MonkeyPatch, expected_logs: Callable[..., None]
) -> None:
    expected_logs("agent.devices", "cannot be listed")
    monkeypatch.setattr("sys.executable", "/bin/false")
    assert ask_devices() == Runtime("", [])


@pytest.mark.skipif(sys.platform == "win32", reason="the child is a shell script")
@pytest.mark.parametrize("code", [0, 3])
def test_what_the_process_of_its_own_says_is_logged_and_its_last_words_are_the_cause(
    code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    expected_logs: Callable[..., None],
) -> None:
    caplog.set_level(logging.INFO)
    expected_logs("agent.devices", "cannot be listed", required=code != 0)
    child = tmp_path / "child"
    child.write_text(
        "#!/bin/sh\necho 'Device GPU is not used: reset.' >&2\necho 'no driver' >&2\n"
        f'echo \'{{"openvino": "2026.4", "devices": []}}\'\nexit {code}\n'
    )
    child.chmod(0o700)
    monkeypatch.setattr("sys.executable", str(child))
    assert ask_devices() == Runtime("2026.4" if code == 0 else "", [])
    assert "devices: Device GPU is not used: reset." in caplog.messages
    warned = [record.getMessage() for record in caplog.records if record.levelno > logging.INFO]
    assert [("no driver" in text) for text in warned] == [True] * (code != 0)


def test_the_process_of_its_own_says_why_a_device_is_not_used(
    core: type[FakeCore], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    core.properties["GPU"] = {"FULL_DEVICE_NAME": RuntimeError("driver reset")}
    monkeypatch.setattr(logging.root, "handlers", [])
    monkeypatch.setattr(logging.root, "level", logging.WARNING)
    answers = list[bytes]()
    tell_runtime(answers.append)
    said = capsys.readouterr()
    assert "Device GPU is not used: it does not answer (driver reset)." in said.err.splitlines()
    assert [device.name for device in msgspec.json.decode(answers[0], type=Runtime).devices] == ["CPU"]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has classes instead of numbers")
def test_the_process_that_looks_makes_way_for_everything_and_answers_alone() -> None:
    program = """
import os
from agent import devices
def look():
    print("words of a driver", flush=True)
    return devices.Runtime(str(os.nice(0)), [])
devices.find_runtime = look
devices.main()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, stdin=subprocess.DEVNULL, check=True)
    assert msgspec.json.decode(done.stdout, type=Runtime).openvino == str(LEAST_NICE)
    assert b"words of a driver" in done.stderr


def test_an_answer_counts_for_an_hour_and_none_for_minutes() -> None:
    one = Runtime("2026.4", [FoundDevice("CPU", "A processor", ["paged"], DeviceMemory("main"))])
    answers, clock = [Runtime("", []), one, Runtime("", [])], HandClock()
    devices = DeviceList(lambda: answers.pop(0), clock)
    assert devices.is_empty()
    assert devices.runtime().devices == []
    clock.now_s += NONE_AGAIN_S - 1
    assert devices.runtime().devices == []
    clock.now_s += 1
    assert devices.runtime() == one
    assert not devices.is_empty()
    clock.now_s += ASK_AGAIN_S - 1
    assert devices.runtime() == one
    clock.now_s += 1
    assert devices.runtime().devices == []
    assert answers == []


def test_gpus_tell_their_memory_and_one_that_does_not_is_used_all_the_same(core: type[FakeCore]) -> None:
    core.properties["GPU.0"] = {
        "FULL_DEVICE_NAME": "A GPU",
        "SUPPORTED_PROPERTIES": {"GPU_DEVICE_TOTAL_MEM_SIZE": "RO"},
        "GPU_DEVICE_TOTAL_MEM_SIZE": 4 * GIB,
        "GPU_DRIVER_VERSION": "26.31.1",
    }
    core.properties["GPU.1"] = {"FULL_DEVICE_NAME": "Another", "GPU_DEVICE_TOTAL_MEM_SIZE": RuntimeError("lost")}
    found = {device.name: device for device in find_devices()}
    assert found["GPU.0"].memory == DeviceMemory("unified", 4 * GIB, driver="26.31.1")
    assert found["GPU.0"].engines == ["stateful", "paged"]
    assert found["GPU.1"].memory == DeviceMemory("unified")
    assert [device.driver for device in offered(found.values(), lambda name: GIB)] == ["", "26.31.1", ""]


def test_devices_that_do_not_answer_or_run_no_engine_are_left_out(core: type[FakeCore]) -> None:
    core.properties["GPU"] = {"FULL_DEVICE_NAME": RuntimeError("driver reset")}
    core.properties["GNA"] = {"FULL_DEVICE_NAME": "An accelerator no engine knows"}
    assert [device.name for device in find_devices()] == ["CPU"]


def test_an_npu_runs_the_packed_engine_only(core: type[FakeCore]) -> None:
    core.properties["NPU"] = {"FULL_DEVICE_NAME": "An NPU"}
    assert {device.name: device.engines for device in find_devices()}["NPU"] == ["packed"]


def test_the_command_line_goes_before_the_file(tmp_path: Any) -> None:
    assert load_settings(tmp_path) == AgentSettings()
    (tmp_path / "agent.toml").write_text("memory_mb = 100\nthreads = 2\ncores = [0]\n")
    assert load_settings(tmp_path) == AgentSettings(memory_mb=100, threads=2, cores=[0])
    assert load_settings(tmp_path, memory_mb=5, cores=[]) == AgentSettings(memory_mb=5, threads=2)
