"""What a PC measured reaches plans and people: over the registry, with its age, and only while it still holds."""

from __future__ import annotations

import pytest

from agent.link.identity import DeviceId
from agent.link.messages import Measurements
from console.api.admin.measured import measured_view
from console.cli_devices import measured_tables
from console.facts import FleetFacts
from console.fleet.events import AgentJoined, AgentTold, AgentView, LinkTimed
from console.fleet.hub import Hub
from console.fleet.whereabouts import Whereabouts
from console.planner.types import Speed
from console.registry.registry import Registry
from console.tables import printer
from tests.support.deployments import request
from tests.support.fleet import make_hello
from tests.support.measurements import make_measurement, make_speed
from tests.unit.console.registry.test_registry import make_device

DIGEST = "a" * 64
SPEED = make_speed(fixed_ms=0.1, embed_ms=0.05, head_ms=3.0, head_ms_8=7.0)


async def told(registry: Registry) -> DeviceId:
    """A PC that joined, told its measurements, and whose link was timed."""
    device = make_device(registry).device_id
    whereabouts = Whereabouts(registry)
    whereabouts.on_fleet_event(AgentJoined(AgentView(device, "pc", make_hello(), None, 0.0)))
    whereabouts.on_fleet_event(AgentTold(device, Measurements([make_measurement(speeds=[SPEED])], 12.5e6, 1e9)))
    whereabouts.on_fleet_event(LinkTimed(device, 3.5))
    await whereabouts.write()
    return device


async def test_plans_count_on_what_was_measured(registry: Registry) -> None:
    await told(registry)
    hub = Hub(lambda certificate: make_device(registry), enrol=_nobody, files=lambda sha256: None)
    (own,) = FleetFacts(registry, hub).known(request(), DIGEST)
    assert own.speed == Speed(
        layer_bytes=2_000_000, layer_ms=0.2, layer_ms_8=0.6, fixed_ms=0.1, embed_ms=0.05, head_ms=3.0, head_ms_8=7.0
    )
    assert (own.rtt_ms, own.bytes_per_s) == (3.5, 12.5e6)
    (other,) = FleetFacts(registry, hub).known(request(), "b" * 64)
    assert other.speed == Speed(layer_bytes=2_000_000, layer_ms=0.2, layer_ms_8=0.6, fixed_ms=0.1)
    (exact,) = FleetFacts(registry, hub).known(request(numerics="exact"), DIGEST)
    assert exact.speed is None


async def _nobody(link: object) -> None:
    """Nobody enrols here."""


async def test_people_see_it_with_its_age_and_whether_it_still_counts(
    registry: Registry, capsys: pytest.CaptureFixture[str]
) -> None:
    record = registry.devices.find(await told(registry))
    assert record is not None
    view = measured_view(record, None, {DIGEST: "small"}, {}, now_s=1e9 + 7200)
    (unit,) = view.units
    assert (unit.model, unit.engine, unit.layer_ms, unit.age_s, unit.counts) == ("small", "paged", 0.2, 7200.0, True)
    assert (view.link.round_trip_ms, view.link.down_bytes_per_s, view.link.down_age_s) == (3.5, 12.5e6, 7200.0)
    for line in measured_tables(view):
        printer().print(line)
    shown = capsys.readouterr().out
    assert "2 h ago" in shown
    assert "100 Mbit/s to the PC" in shown
    newer = AgentView(record.device_id, "pc", make_hello(openvino="2026.5"), None, 0.0)
    assert [unit.counts for unit in measured_view(record, newer, {}, {}, now_s=1e9).units] == [False]


def test_a_pc_that_was_never_measured_says_so(registry: Registry) -> None:
    lines = list(measured_tables(measured_view(make_device(registry), None, {}, {}, now_s=0.0)))
    assert "No unit was measured there yet; a PC measures itself while it has nothing else to do." in lines
    assert lines[-1] == "Link: not measured yet"
