"""What this PC can compute with: OpenVINO devices, the engines they run, and what they say of their memory.

`ask_devices` asks in a process of its own: OpenVINO takes 20 MB and a second, drivers may hang or crash, and the agent
should be small and alive when nobody needs it. `python -m agent.devices` is that process. `DeviceList` remembers what
it said. Everything blocks.
"""

from __future__ import annotations

import logging
import math
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import msgspec
import psutil

from agent.children import NO_WINDOW, log_words
from agent.stage import child
from agent.stage.pipes import write_all
from agent.stage.priority import make_way
from agent.stage.types import EngineName
from agent.volunteer.device_memory import read_device_memory
from agent.volunteer.memory import DeviceMemory

log = logging.getLogger(__name__)

ASK_S = 120.0
ASK_AGAIN_S = 3600.0
"""Devices come and go with docks, drivers and remote sessions."""
NONE_AGAIN_S = 300.0
"""Every PC has a CPU: none at all means that asking failed, as it does while a driver is updated."""


class FoundDevice(msgspec.Struct, frozen=True):
    """One OpenVINO device that can run a stage; `engines` run on it, the preferred one first."""

    name: str
    full_name: str
    engines: list[EngineName]
    memory: DeviceMemory


def memory_free_bytes() -> int:
    """Return the PC's available memory now: what a heartbeat reports."""
    return int(psutil.virtual_memory().available)


class Runtime(msgspec.Struct, frozen=True):
    """The version of OpenVINO here, and the devices it can use; none if it does not work."""

    openvino: str
    devices: list[FoundDevice]


def ask_devices() -> Runtime:
    """Like `find_runtime`, in a process of its own; one that fails or hangs is logged, and there are no devices."""
    command = [sys.executable, "-m", "agent.devices"]
    try:
        done = subprocess.run(
            command, capture_output=True, stdin=subprocess.DEVNULL, creationflags=NO_WINDOW, timeout=ASK_S, check=True,
            start_new_session=True,  # for a scheduling group of its own, see agent.stage.priority
        )  # fmt: skip
        log_words(log, "devices", done.stderr)
        return msgspec.json.decode(done.stdout, type=Runtime)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        return _none(log_words(log, "devices", error.stderr) or _first_line(error))
    except (OSError, msgspec.MsgspecError) as error:
        return _none(_first_line(error))


def _none(cause: str) -> Runtime:
    log.warning("This PC's devices cannot be listed (%s); run `fallow-agent doctor`.", cause)
    return Runtime("", [])


def main() -> None:
    """Be the process of `ask_devices`: gently, because it is asked just when a PC starts or wakes up."""
    out = child.begin()
    make_way()
    tell_runtime(lambda answer: write_all(out, answer))


def tell_runtime(write: Callable[[bytes], object]) -> None:
    """Write the runtime for `ask_devices`, and to stderr what it should log."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    write(msgspec.json.encode(find_runtime()))


def find_runtime() -> Runtime:
    """Load OpenVINO into this process and look."""
    import openvino

    return Runtime(openvino.get_version().split("-")[0], find_devices())


def find_devices() -> list[FoundDevice]:
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
        found.append(FoundDevice(name, full_name, engines, read_device_memory(core, name)))
    return found


class DeviceList:
    """What was found when it was last asked. Any thread; `clock` is steady."""

    def __init__(self, ask: Callable[[], Runtime], clock: Callable[[], float] = time.monotonic) -> None:
        self._ask, self._clock = ask, clock
        self._asking = threading.Lock()
        self._found = Runtime("", [])
        self._asked_s = -math.inf

    def runtime(self) -> Runtime:
        """Return what is known; asks first, and blocks, when that does not count any more."""
        with self._asking:
            now_s = self._clock()
            if now_s - self._asked_s >= self.counts_s:
                self._found, self._asked_s = self._ask(), now_s
            return self._found

    def is_empty(self) -> bool:
        """Whether nothing is known."""
        return not self._found.devices

    @property
    def counts_s(self) -> float:
        """How long the last answer counts."""
        return NONE_AGAIN_S if self.is_empty() else ASK_AGAIN_S


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


if __name__ == "__main__":
    main()
