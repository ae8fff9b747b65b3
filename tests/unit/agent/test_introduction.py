from __future__ import annotations

from agent.devices import FoundDevice
from agent.introduction import introduce, offered
from agent.volunteer.memory import DeviceMemory


def test_a_pc_introduces_itself_with_what_it_holds() -> None:
    devices = offered([FoundDevice("GPU.0", "A GPU", ["stateful"], DeviceMemory("unified"))], {"GPU.0": 3}.__getitem__)
    hello = introduce("2026.4", devices, memory_bytes=5, key_protection="keyring", held_sha256=["a" * 64])
    assert [(device.name, device.memory_bytes) for device in hello.devices] == [("GPU.0", 3)]
    assert hello.cores >= 1
    assert hello.host
    assert (hello.memory_bytes, hello.key_protection, hello.held_sha256) == (5, "keyring", ["a" * 64])
    assert hello.openvino == "2026.4"
