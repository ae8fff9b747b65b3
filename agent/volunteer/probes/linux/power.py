"""Mains, batteries and heat from sysfs. Our own reader: psutil takes a mouse's battery for the PC's, and knows nothing
of a PC whose battery rests at 80 %.

Formats: Documentation/ABI/testing/sysfs-class-power, sysfs-class-thermal and the hwmon interface of the Linux kernel.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from agent.volunteer.facts import Heat, Power
from agent.volunteer.probes.base import Absent, Seen, Unreadable
from agent.volunteer.probes.reading import Simple

POWER_SUPPLY = Path("/sys/class/power_supply")
HWMON = Path("/sys/class/hwmon")
THERMAL = Path("/sys/class/thermal")
CPUS = Path("/sys/devices/system/cpu")
DRM = Path("/sys/class/drm")
CPU_SENSORS = frozenset({"coretemp", "k10temp", "zenpower", "cpu_thermal"})
CPU_ZONES = frozenset({"x86_pkg_temp", "TCPU", "cpu-thermal", "cpu_thermal", "soc_thermal", "acpitz"})
HOTTEST_CREDIBLE_C = 150.0


def read_power(folder: Path = POWER_SUPPLY) -> Power:
    """Return what the PC runs on.

    A battery that discharges says so whatever is plugged in: a weak USB-C charger is online and still not enough. No
    battery is a desktop, on mains. `Unknown` without any supply that is online stays unknown.
    """
    statuses, levels, plugged = list[str](), list[float](), False
    for supply in sorted(folder.iterdir()) if folder.is_dir() else []:
        kind = _text(supply / "type")
        if _text(supply / "scope") == "Device" or not kind or _text(supply / "present") == "0":
            continue  # a mouse, a headset, an empty bay
        if kind == "Battery":
            statuses.append(_text(supply / "status"))
            level = _number(supply / "capacity")
            if level is not None and 0 <= level <= 100:
                levels.append(level)
        elif kind != "UPS" and _text(supply / "online") in ("1", "2"):
            plugged = True
    if not statuses:
        return Power(on_mains=True, has_battery=False)
    on_mains: bool | None
    if "Discharging" in statuses:
        on_mains = False
    elif plugged or any(status in ("Charging", "Full", "Not charging") for status in statuses):
        on_mains = True
    else:
        on_mains = None
    return Power(on_mains, has_battery=True, battery_percent=min(levels, default=None))


class HeatSensors(Simple):
    """The hottest processor sensor, and whether the processor counted up how often it slowed itself down."""

    def __init__(self, *, hwmon: Path = HWMON, thermal: Path = THERMAL, cpus: Path = CPUS) -> None:
        self._hwmon, self._thermal, self._cpus = hwmon, thermal, cpus
        self._throttled: int | None = None

    def read(self) -> Seen:
        celsius = max(self._sensors() or self._zones(), default=None)
        counts = [_number(path) for path in self._cpus.glob("cpu[0-9]*/thermal_throttle/package_throttle_count")]
        known = [int(count) for count in counts if count is not None]
        before, self._throttled = self._throttled, sum(known) if known else None
        if celsius is None and not known:
            raise Absent("this PC tells no temperature")
        throttling = before is not None and self._throttled is not None and self._throttled > before
        return {"heat": Heat(celsius, throttling)}

    def _sensors(self) -> list[float]:
        chips = [chip for chip in self._hwmon.glob("hwmon*") if _text(chip / "name") in CPU_SENSORS]
        return _celsius(path for chip in chips for path in chip.glob("temp*_input"))

    def _zones(self) -> list[float]:
        zones = self._thermal.glob("thermal_zone*")
        return _celsius(zone / "temp" for zone in zones if _text(zone / "type") in CPU_ZONES)


def read_displays(folder: Path = DRM) -> Seen:
    """Tell whether every connected display is off, or switched off in the settings.

    Raises Absent where the kernel drives none, and Unreadable where none is connected: a PC that is used from elsewhere
    has no display that could go dark.
    """
    connectors = list(folder.glob("card*-*"))
    if not connectors:
        raise Absent("the kernel drives no display")
    connected = [connector for connector in connectors if _text(connector / "status") == "connected"]
    if not connected:
        raise Unreadable("no display is connected")
    states = [_text(one / "dpms") for one in connected if _text(one / "enabled") != "disabled"]
    known = [state for state in states if state]
    if not known and states:
        raise Unreadable("the displays do not tell")
    return {"displays_off": all(state != "On" for state in known)}


def _celsius(paths: Iterable[Path]) -> list[float]:
    found = [_number(path) for path in paths]
    return [value / 1000 for value in found if value is not None and 0 < value <= HOTTEST_CREDIBLE_C * 1000]


def _text(path: Path) -> str:
    """Return a file's text, empty where it is missing: a driver leaves out what its hardware does not have."""
    try:
        return path.read_text("ascii", errors="replace").strip()
    except OSError:
        return ""


def _number(path: Path) -> float | None:
    try:
        return float(int(_text(path)))
    except ValueError:
        return None
