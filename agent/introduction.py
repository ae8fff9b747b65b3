"""How this PC introduces itself to the console: what it computes with, what it offers of it, what it holds already."""

from __future__ import annotations

import asyncio
import os
import platform
from collections.abc import Callable, Iterable
from importlib.metadata import version

import msgspec
import psutil

from agent.devices import DeviceList, FoundDevice, Runtime
from agent.link.keystore import Protection
from agent.link.messages import MAX_NAMED_FILES, PROTOCOL, Device, Hello
from agent.link.store import Store
from agent.update.updates import Updates
from agent.volunteer.duty import Volunteer
from agent.volunteer.memory_book import MemoryBook
from agent.volunteer.policy import allows_device


class Introduction:
    """What is said of this PC at the beginning of a session, and the devices as they were looked at then.

    `hello` blocks and belongs into a thread, one at a time; everything else to the event loop.
    """

    def __init__(
        self,
        store: Store,
        memory: MemoryBook,
        volunteer: Volunteer,
        list_devices: Callable[[], Runtime],
        updates: Updates | None = None,
    ) -> None:
        self._store, self._memory, self._volunteer, self._updates = store, memory, volunteer, updates
        self._found = DeviceList(list_devices)
        self.openvino = ""
        """The version of OpenVINO here; empty when it does not work."""
        self.devices: list[Device] = []
        """Every device of this PC, used or not, as it was last looked at."""

    @property
    def usable_devices(self) -> list[Device]:
        """The devices that may compute."""
        return [device for device in self.devices if allows_device(self._volunteer.policy, device.name)]

    def hello(self, mark: str, key_protection: Protection) -> Hello:
        """Look at the devices, if that was long ago, and introduce this PC as it is now."""
        runtime = self._found.runtime()
        self.openvino = runtime.openvino
        self._memory.know({device.name: device.memory for device in runtime.devices})
        self.devices = offered(runtime.devices, self._memory.offer_bytes)
        hello = introduce(
            self.openvino,
            self.usable_devices,
            memory_bytes=self._memory.offer_bytes("CPU"),
            key_protection=key_protection,
            held_sha256=self._store.held()[:MAX_NAMED_FILES],
        )
        state, reasons = self._volunteer.availability()
        platform_, channel = ("", "") if self._updates is None else (self._updates.platform, self._updates.channel)
        return msgspec.structs.replace(
            hello, mark=mark, state=state, reasons=reasons, platform=platform_, channel=channel
        )

    async def finds_devices(self) -> bool:
        """While this PC knows of no device, ask again now and then; returns whether it knew of none and does now."""
        knew_none = self._found.is_empty()
        while self._found.is_empty():
            await asyncio.sleep(self._found.counts_s)
            await asyncio.to_thread(self._found.runtime)
        return knew_none


def offered(devices: Iterable[FoundDevice], offer_bytes: Callable[[str], int]) -> list[Device]:
    """Say of each device what the console is told; `offer_bytes` is what it may plan with there."""
    return [Device(one.name, one.full_name, offer_bytes(one.name), one.engines, one.memory.driver) for one in devices]


def introduce(
    openvino_version: str,
    devices: list[Device],
    *,
    memory_bytes: int,
    key_protection: Protection,
    held_sha256: list[str],
) -> Hello:
    """Introduce a PC that may be planned with."""
    return Hello(
        protocol=PROTOCOL,
        version=version("fallow"),
        host=platform.node() or "unnamed",
        os=f"{platform.system()} {platform.release()}",
        cores=psutil.cpu_count(logical=False) or os.cpu_count() or 1,
        memory_bytes=memory_bytes,
        devices=devices,
        openvino=openvino_version,
        key_protection=key_protection,
        held_sha256=held_sha256,
        takes_policy=True,
        advances=True,
        tells_log=True,
    )
