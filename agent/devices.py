"""What this PC can compute with: OpenVINO devices, the engines they run, and how much memory a stage may take.

`ask_devices` asks in a process of its own: OpenVINO takes 20 MB and a second, drivers may hang or crash, and the agent
should be small and alive when nobody needs it. `python -m agent.devices BYTES` is that process. Everything blocks.
"""

from __future__ import annotations

import logging
import os
import platform
import subprocess
import sys
from importlib.metadata import version
from typing import TYPE_CHECKING

import msgspec
import psutil

from agent.link.messages import PROTOCOL, Device, Hello

if TYPE_CHECKING:
    import openvino

log = logging.getLogger(__name__)

MEMORY_FRACTION = 0.8
"""Of the memory that is available now; the rest is for what the owner opens next."""
MEMORY_RESERVE_BYTES = 1 << 30
ASK_S = 120.0


def memory_budget_bytes(limit_mb: int = 0) -> int:
    """Return what a stage may use: a fraction of the available memory minus a reserve, never more than the limit."""
    available = psutil.virtual_memory().available
    budget = max(0, int(available * MEMORY_FRACTION) - MEMORY_RESERVE_BYTES)
    return min(budget, limit_mb << 20) if limit_mb else budget


def memory_free_bytes() -> int:
    """Return the PC's available memory now: what a heartbeat reports."""
    return int(psutil.virtual_memory().available)


class Runtime(msgspec.Struct, frozen=True):
    """The version of OpenVINO here, and the devices it can use; none if it does not work."""

    openvino: str
    devices: list[Device]


def ask_devices(memory_bytes: int) -> Runtime:
    """Like `find_runtime`, in a process of its own; one that fails or hangs is logged, and there are no devices."""
    command = [sys.executable, "-m", "agent.devices", str(memory_bytes)]
    try:
        done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, timeout=ASK_S, check=True)
        return msgspec.json.decode(done.stdout, type=Runtime)
    except (OSError, subprocess.SubprocessError, msgspec.MsgspecError) as error:
        log.warning("This PC's devices cannot be listed (%s); run `fallow-agent doctor`.", _first_line(error))
        return Runtime("", [])


def find_runtime(memory_bytes: int) -> Runtime:
    """Load OpenVINO into this process and look."""
    import openvino

    return Runtime(openvino.get_version().split("-")[0], find_devices(memory_bytes))


def find_devices(memory_bytes: int) -> list[Device]:
    """List the devices that can run a stage; at least the CPU. A device that does not answer is left out, logged."""
    import openvino

    from agent.stage.engines.selection import engines_of

    core = openvino.Core()
    found = []
    for name in core.available_devices:
        engines = engines_of(name)
        if not engines:
            log.info("Device %s is not used: no engine runs on it.", name)
            continue
        try:
            full_name = str(core.get_property(name, "FULL_DEVICE_NAME"))
        except RuntimeError as error:
            # A driver that was just updated or reset can be listed and still refuse every question.
            log.info("Device %s is not used: it does not answer (%s).", name, _first_line(error))
            continue
        own = _own_memory_bytes(core, name)
        found.append(Device(name, full_name, min(memory_bytes, own) if own else memory_bytes, engines))
    return found


def introduce(runtime: Runtime, *, memory_bytes: int, key_protection: str, held_sha256: list[str]) -> Hello:
    """Introduce this PC to the console."""
    return Hello(
        protocol=PROTOCOL,
        version=version("fallow"),
        host=platform.node() or "unnamed",
        os=f"{platform.system()} {platform.release()}",
        cores=psutil.cpu_count(logical=False) or os.cpu_count() or 1,
        memory_bytes=memory_bytes,
        devices=runtime.devices,
        openvino=runtime.openvino,
        key_protection="keyring" if key_protection == "keyring" else "file",
        held_sha256=held_sha256,
    )


def _own_memory_bytes(core: openvino.Core, name: str) -> int:
    """Return a GPU's own memory, 0 where it has none to speak of or does not tell."""
    if not name.startswith("GPU"):
        return 0
    try:
        return int(core.get_property(name, "GPU_DEVICE_TOTAL_MEM_SIZE"))
    except (RuntimeError, TypeError, ValueError) as error:
        log.info("Device %s does not tell its memory (%s).", name, _first_line(error))
        return 0


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


if __name__ == "__main__":
    sys.stdout.write(msgspec.json.encode(find_runtime(int(sys.argv[1]))).decode())
