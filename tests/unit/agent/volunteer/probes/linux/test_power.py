from __future__ import annotations

from pathlib import Path

import pytest

from agent.volunteer.facts import Heat, Power
from agent.volunteer.probes.base import Absent, Unreadable
from agent.volunteer.probes.linux.power import HeatSensors, read_displays, read_power

Files = dict[str, dict[str, str]]


def grow(root: Path, tree: Files) -> Path:
    for folder, files in tree.items():
        for name, text in files.items():
            path = root / folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text + "\n")
    return root


def battery(status: str, capacity: str = "80", **more: str) -> dict[str, str]:
    return {"type": "Battery", "status": status, "capacity": capacity, **more}


PLUG = {"type": "Mains", "online": "1"}
UNPLUGGED = {"type": "Mains", "online": "0"}
MOUSE = {"type": "Battery", "scope": "Device", "status": "Discharging", "capacity": "35"}


@pytest.mark.parametrize(
    ("tree", "power"),
    [
        pytest.param({}, Power(True, False), id="desktop"),
        pytest.param({"hidpp_battery_0": MOUSE}, Power(True, False), id="only a mouse's battery"),
        pytest.param({"AC": UNPLUGGED, "BAT0": battery("Discharging")}, Power(False, True, 80), id="battery"),
        pytest.param({"AC": PLUG, "BAT0": battery("Charging", "40")}, Power(True, True, 40), id="charging"),
        pytest.param({"AC": PLUG, "BAT0": battery("Not charging")}, Power(True, True, 80), id="held at 80 %"),
        pytest.param({"BAT0": battery("Full", "100")}, Power(True, True, 100), id="full"),
        pytest.param({"AC": PLUG, "BAT0": battery("Unknown")}, Power(True, True, 80), id="unknown but plugged in"),
        pytest.param({"AC": UNPLUGGED, "BAT0": battery("Unknown")}, Power(None, True, 80), id="unknown"),
        pytest.param({"BAT0": battery("")}, Power(None, True, 80), id="status missing"),
        pytest.param(
            {"ucsi-source-psy-USBC000": {"type": "USB", "online": "1"}, "BAT0": battery("Discharging")},
            Power(False, True, 80), id="a charger too weak",
        ),
        pytest.param(
            {"BAT0": battery("Discharging", "30"), "BAT1": battery("Not charging", "95")},
            Power(False, True, 30), id="two batteries",
        ),
        pytest.param(
            {"AC": PLUG, "BAT0": battery("Full", "100"), "BAT1": battery("Charging", "20")},
            Power(True, True, 20), id="two batteries on mains",
        ),
        pytest.param({"BAT0": battery("Unknown", present="0")}, Power(True, False), id="empty bay"),
        pytest.param({"BAT0": battery("Discharging", "255")}, Power(False, True, None), id="capacity 255"),
        pytest.param({"BAT0": battery("Discharging", "-3")}, Power(False, True, None), id="capacity negative"),
        pytest.param({"BAT0": battery("Discharging", "half")}, Power(False, True, None), id="capacity a word"),
        pytest.param({"ups": {"type": "UPS", "online": "0", "status": "Discharging"}}, Power(True, False), id="UPS"),
        pytest.param({"AC": PLUG, "hidpp_battery_0": MOUSE}, Power(True, False), id="mains and a mouse"),
    ],
)  # fmt: skip
def test_what_the_pc_runs_on(tmp_path: Path, tree: Files, power: Power) -> None:
    assert read_power(grow(tmp_path, tree)) == power


def test_a_kernel_without_power_supplies_is_a_desktop(tmp_path: Path) -> None:
    assert read_power(tmp_path / "absent") == Power(True, False)


def sensors(root: Path) -> HeatSensors:
    return HeatSensors(hwmon=root / "hwmon", thermal=root / "thermal", cpus=root / "cpu")


def test_the_hottest_processor_sensor_counts_and_other_chips_do_not(tmp_path: Path) -> None:
    grow(tmp_path, {
        "hwmon/hwmon0": {"name": "coretemp", "temp1_input": "61000", "temp2_input": "72500", "temp3_input": "999000"},
        "hwmon/hwmon1": {"name": "nvme", "temp1_input": "88000"},
        "thermal/thermal_zone0": {"type": "acpitz", "temp": "95000"},
    })  # fmt: skip
    assert sensors(tmp_path).read() == {"heat": Heat(72.5, False)}


def test_a_pc_without_sensors_has_zones(tmp_path: Path) -> None:
    grow(tmp_path, {"thermal/thermal_zone0": {"type": "x86_pkg_temp", "temp": "48000"},
                    "thermal/thermal_zone1": {"type": "iwlwifi_1", "temp": "90000"},
                    "thermal/thermal_zone2": {"type": "acpitz", "temp": "-274000"}})  # fmt: skip
    assert sensors(tmp_path).read() == {"heat": Heat(48.0, False)}


def test_a_processor_that_counted_up_its_throttling_throttles(tmp_path: Path) -> None:
    count = "cpu/cpu0/thermal_throttle"
    grow(tmp_path, {count: {"package_throttle_count": "5"}})
    probe = sensors(tmp_path)
    assert probe.read() == {"heat": Heat(None, False)}
    grow(tmp_path, {count: {"package_throttle_count": "6"}})
    assert probe.read() == {"heat": Heat(None, True)}
    assert probe.read() == {"heat": Heat(None, False)}


def test_no_sensor_at_all_is_absent(tmp_path: Path) -> None:
    with pytest.raises(Absent):
        sensors(tmp_path).read()


@pytest.mark.parametrize(
    ("tree", "off"),
    [
        ({"card0-eDP-1": {"status": "connected", "dpms": "On"}}, False),
        ({"card0-eDP-1": {"status": "connected", "dpms": "Off"}}, True),
        ({"card0-eDP-1": {"status": "connected", "dpms": "Off"},
          "card0-DP-1": {"status": "connected", "dpms": "On", "enabled": "enabled"}}, False),
        ({"card0-eDP-1": {"status": "connected", "dpms": "Off"},
          "card0-DP-1": {"status": "disconnected", "dpms": "On"}}, True),
        ({"card0-eDP-1": {"status": "connected", "dpms": "On", "enabled": "disabled"},
          "card0-DP-1": {"status": "connected", "dpms": "Off", "enabled": "enabled"}}, True),
        ({"card0-eDP-1": {"status": "connected", "dpms": "Off", "enabled": "disabled"}}, True),
    ],
)  # fmt: skip
def test_displays_are_off_when_every_connected_one_is(tmp_path: Path, tree: Files, off: bool) -> None:
    assert read_displays(grow(tmp_path, tree)) == {"displays_off": off}


@pytest.mark.parametrize("status", ["disconnected", "unknown", ""])
def test_no_connected_display_is_no_dark_one(tmp_path: Path, status: str) -> None:
    with pytest.raises(Unreadable, match="no display is connected"):
        read_displays(grow(tmp_path, {"card0-DP-1": {"status": status, "dpms": "Off"}}))


def test_displays_that_do_not_tell(tmp_path: Path) -> None:
    with pytest.raises(Absent):
        read_displays(tmp_path)
    with pytest.raises(Unreadable):
        read_displays(grow(tmp_path, {"card0-eDP-1": {"status": "connected"}}))
