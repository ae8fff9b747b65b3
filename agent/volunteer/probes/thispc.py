"""Which probes and watches fit the system this runs on. Nothing is asked yet: their workers do that."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from agent.volunteer.clock import SYSTEM_CLOCK, steady_s
from agent.volunteer.probes.base import FactName, Probe, Source, SystemEvent, Watch
from agent.volunteer.probes.board import ProbeBoard
from agent.volunteer.probes.load import ExclusiveApps, MainMemory, OtherCpu, read_disk
from agent.volunteer.probes.reading import Asking

PRESENCE_INTERVAL_S = 1.0
"""While at rest: the state machine trusts an answer about presence for 3 s only."""
REST_INTERVAL_S = 4.0
"""How often load and memory are asked for while at rest, where they hold nothing back at once."""
CLOSE_INTERVAL_S = 0.25
"""How often presence is asked for while this PC serves, beside the push."""
ASKING_INTERVAL_S = 0.05
"""The same where nothing pushes: Windows and macOS tell of input only to who reads it. 0.02 ms each time."""

_SESSION: tuple[FactName, ...] = ("locked", "remote_session", "session_switched")


@dataclass(frozen=True)
class ThisPc:
    """The probes and watches of one system, and how long it has slept since it was switched on."""

    probes: list[Probe]
    watches: list[Watch]
    asleep_s: Callable[[], float]


def open_board(
    folder: Path,
    *,
    on_input: Callable[[str], None] = lambda _source: None,
    on_event: Callable[[SystemEvent], None] = lambda _event: None,
    environment: Mapping[str, str] = os.environ,
) -> ProbeBoard:
    """Make the board of this PC; model files lie in `folder`. Start it next."""
    pc = own_probes(environment)
    apps = ExclusiveApps()
    everywhere = [
        Probe("processes", OtherCpu(), ("other_cpu_percent",), REST_INTERVAL_S, 2.0),
        Probe("programs", apps, ("exclusive",), interval_s=5.0),
        Probe("disk", Asking(lambda: read_disk(folder)), ("disk_free_bytes",), interval_s=10.0),
    ]
    return ProbeBoard(
        [*pc.probes, *everywhere], pc.watches, apps=apps, on_input=on_input, on_event=on_event, asleep_s=pc.asleep_s
    )


def _presence(name: str, source: Source, *, close_s: float = CLOSE_INTERVAL_S, last_resort: bool = False) -> Probe:
    return Probe(name, source, ("idle_s",), PRESENCE_INTERVAL_S, close_s, last_resort)


if sys.platform == "win32":

    def own_probes(_environment: Mapping[str, str]) -> ThisPc:
        """Return what fits this system."""
        from agent.volunteer.probes.windows import api, counters, network, sources, window

        windows = api.RealWindows()
        displays = window.DisplayState()
        probes = [
            _presence("last-input", sources.LastInput(windows), close_s=ASKING_INTERVAL_S),
            Probe("session", sources.SessionState(windows), _SESSION, PRESENCE_INTERVAL_S),
            Probe("notifications", sources.Notifications(windows), ("fullscreen", "presentation")),
            Probe("console-display", displays, ("displays_off",)),
            Probe(
                "gpu-engines",
                counters.GpuEngines(lambda: counters.PdhCounters(counters.ENGINES)),
                ("other_gpu_percent",),
                interval_s=REST_INTERVAL_S,  # Windows lists every engine of every program each time
                close_interval_s=2.0,
            ),
            Probe("memory", MainMemory(low=windows.memory_is_low), ("memory",), REST_INTERVAL_S, 1.0),
            Probe("power", sources.PowerState(windows), ("power",), interval_s=5.0),
            Probe("network-cost", network.NetworkCost(network.connection_cost), ("metered",), interval_s=10.0),
        ]
        return ThisPc(probes, [window.MessageWindow(displays)], lambda: steady_s() - windows.unbiased_s())

elif sys.platform == "darwin":

    def own_probes(_environment: Mapping[str, str]) -> ThisPc:
        """Return what fits this system."""
        from agent.volunteer.probes import macos

        mac = macos.RealMac()
        probes = [
            _presence("hid", macos.MacIdle(mac), close_s=ASKING_INTERVAL_S),
            Probe(
                "session", macos.MacSession(mac), ("locked", "session_switched", "displays_off"), PRESENCE_INTERVAL_S
            ),
            Probe("memory", MainMemory(), ("memory",), REST_INTERVAL_S, 1.0),
            Probe("power", macos.MacPower(mac), ("power",), interval_s=5.0),
        ]
        return ThisPc(probes, [], SYSTEM_CLOCK.asleep_s)

else:

    def own_probes(environment: Mapping[str, str]) -> ThisPc:
        """Return what fits this system."""
        from agent.volunteer.probes.linux import desktop, gpu, power, screen, system, wayland

        compositor = wayland.WaylandIdle(environment, steady_s)
        probes = [
            _presence("mutter", desktop.MutterIdle(environment)),
            _presence("wayland", compositor),
            _presence("x11", screen.XIdle(environment)),
            _presence("kde", desktop.KdeIdle(environment)),
            _presence("logind-idle", system.LogindIdle(environment, _monotonic_us), last_resort=True),
            Probe("logind", system.LogindSession(environment), _SESSION, PRESENCE_INTERVAL_S),
            Probe("gnome-saver", desktop.SaverLock(desktop.GNOME_SAVER, environment), ("locked",), PRESENCE_INTERVAL_S),
            Probe("kde-saver", desktop.SaverLock(desktop.KDE_SAVER, environment), ("locked",), PRESENCE_INTERVAL_S),
            Probe("x11-screen", screen.XScreen(environment), ("fullscreen", "displays_off")),
            Probe("drm", Asking(power.read_displays), ("displays_off",)),
            Probe("desktop-inhibitors", desktop.IdleInhibitors(environment), ("inhibitors",)),
            Probe("logind-inhibitors", system.LogindInhibitors(environment), ("inhibitors",)),
            Probe("fdinfo", gpu.OtherGpu(gpu.GpuClients(steady_s), steady_s), ("other_gpu_percent",)),
            Probe("proc", MainMemory(), ("memory",), REST_INTERVAL_S, 1.0),
            Probe("sysfs-power", Asking(lambda: {"power": power.read_power()}), ("power",), interval_s=5.0),
            Probe("power-profiles", system.PowerProfile(environment), ("power_saver",), interval_s=10.0),
            Probe("sensors", power.HeatSensors(), ("heat",), interval_s=5.0),
            Probe("network-manager", system.MeteredNetwork(environment), ("metered",), interval_s=10.0),
        ]
        watches: list[Watch] = [
            desktop.MutterWatch(environment),
            compositor,
            screen.XWatch(environment),
            system.LogindWatch(environment),
        ]
        return ThisPc(probes, watches, SYSTEM_CLOCK.asleep_s)

    def _monotonic_us() -> int:
        return time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
