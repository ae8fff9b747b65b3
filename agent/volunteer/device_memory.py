"""What OpenVINO tells of a device's memory. Blocking, and only in a process that may load OpenVINO.

Only properties that a device lists are asked for, each on its own: a driver that was just updated refuses some.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Protocol

from agent.volunteer.memory import MOST_BYTES, DeviceMemory, MemoryKind

log = logging.getLogger(__name__)


class Core(Protocol):
    """As much of `openvino.Core` as is needed."""

    def get_property(self, device: str, name: str) -> Any: ...


def read_device_memory(core: Core, name: str) -> DeviceMemory:
    """Return what a device such as `GPU.0` says; what it does not is 0 or empty. Never raises."""
    family = name.partition(".")[0]
    if family not in ("GPU", "NPU"):
        return DeviceMemory()
    ask = _asker(core, name)
    # An NPU is part of the processor; of a GPU that does not say which it is, main memory has to be feared for.
    kind: MemoryKind = "own" if family == "GPU" and _is_discrete(ask("DEVICE_TYPE")) else "unified"
    return DeviceMemory(
        kind,
        total_bytes=_size(ask(f"{family}_DEVICE_TOTAL_MEM_SIZE")),
        largest_buffer_bytes=_size(ask("GPU_DEVICE_MAX_ALLOC_MEM_SIZE")) if family == "GPU" else 0,
        address=pci_address(ask("DEVICE_PCI_INFO")) or luid_address(ask("DEVICE_LUID")),
        driver=str(ask(f"{family}_DRIVER_VERSION") or ""),
    )


def pci_address(info: object) -> str:
    """Return a PCI address as Linux writes it, `0000:00:02.0`; empty for what is none."""
    try:
        domain, bus, device, function = (int(getattr(info, part)) for part in ("domain", "bus", "device", "function"))
    except (AttributeError, TypeError, ValueError):
        return ""
    return f"{domain:04x}:{bus:02x}:{device:02x}.{function:x}"


def luid_address(luid: object) -> str:
    """Return a locally unique id as the performance counters write it: 16 digits, the high part first.

    OpenVINO gives the eight bytes as they lie in memory, the low part first and each part with its low byte first.
    """
    try:
        raw = bytes.fromhex(str(luid))
    except ValueError:
        return ""
    if len(raw) != 8 or not any(raw):
        return ""
    return f"{int.from_bytes(raw[4:], 'little'):08x}{int.from_bytes(raw[:4], 'little'):08x}"


def _asker(core: Core, device: str) -> Callable[[str], Any]:
    try:
        listed = {str(name) for name in core.get_property(device, "SUPPORTED_PROPERTIES")}
    except (RuntimeError, TypeError) as error:
        log.info("Device %s does not list its properties (%s).", device, type(error).__name__)
        listed = set()

    def ask(name: str) -> Any:
        # `GPU_DRIVER_VERSION` answers without being listed.
        if name not in listed and not name.endswith("_DRIVER_VERSION"):
            return None
        try:
            return core.get_property(device, name)
        except (RuntimeError, TypeError, ValueError) as error:
            log.info("Device %s does not tell %s (%s).", device, name, type(error).__name__)
            return None

    return ask


def _is_discrete(kind: object) -> bool:
    return "DISCRETE" in str(kind).upper()


def _size(value: object) -> int:
    """Return a size in bytes; 0 for what cannot be one, as a driver after a reset may say."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= MOST_BYTES:
        return value
    return 0
