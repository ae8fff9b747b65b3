"""`fallow-console devices`: what PCs can compute with, how fast they were measured to be, and what they logged."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from rich.table import Table

from console.api.admin.measured import LinkRow, MeasuredView
from console.cli_tools import Commands, client_of, command, group, show
from console.tables import gigabytes, table


def add_devices(commands: Commands) -> None:
    """Add the subcommands."""
    devices = group(commands, "devices", "What PCs can compute with.")
    shown = command(devices, "show", "show what was measured of a PC", _show)
    shown.add_argument("id", help="the PC's id or code; see: fallow-console agents")
    log = command(devices, "log", "show the last lines of what a PC's agent logged about its work", _log)
    log.add_argument("id", help="the PC's id or code; see: fallow-console agents")


def _log(options: argparse.Namespace) -> int:
    with client_of(options) as console:
        view = console.log_of(options.id)
    return show(options, view, *(view.lines or ["Nothing was logged there since its agent started."]))


def _show(options: argparse.Namespace) -> int:
    with client_of(options) as console:
        view = console.measured(options.id)
    return show(options, view, *measured_tables(view))


def measured_tables(view: MeasuredView) -> Iterator[Table | str]:
    """Yield a PC's devices, what units take there, and its link."""
    yield f"{view.name} ({view.device_id}), OpenVINO {view.openvino or 'unknown'}"
    yield table(
        ("device", "what", "driver", "memory", "engines"),
        [
            (device.name, device.full_name, device.driver, gigabytes(device.memory_bytes), ", ".join(device.engines))
            for device in view.devices
        ],
    )
    rows = [
        (
            unit.model, unit.device, unit.engine, unit.numerics, f"{unit.layer_ms:.3f}", f"{unit.layer_ms_8:.3f}",
            f"{unit.fixed_ms:.3f}", _ms(unit.embed_ms), _ms(unit.head_ms), _ms(unit.head_ms_8),
            age_text(unit.age_s) + ("" if unit.counts else ", outdated"),
        )
        for unit in view.units
    ]  # fmt: skip
    if rows:
        columns = ("model", "device", "engine", "numerics", "layer ms", "of 8", "fixed", "embed", "head", "of 8", "age")
        yield table(columns, rows)
    else:
        yield "No unit was measured there yet; a PC measures itself while it has nothing else to do."
    yield from (f"Served as {kind}: {speed:.4f} ms per MB" for kind, speed in view.stages.items())
    yield link_text(view.link)


def link_text(link: LinkRow) -> str:
    """Say how far a PC is from the console."""
    parts = []
    if link.round_trip_ms is not None and link.round_trip_age_s is not None:
        parts.append(f"{link.round_trip_ms:.1f} ms there and back ({age_text(link.round_trip_age_s)})")
    if link.down_bytes_per_s is not None and link.down_age_s is not None:
        parts.append(f"{link.down_bytes_per_s * 8 / 1e6:.0f} Mbit/s to the PC ({age_text(link.down_age_s)})")
    return "Link: " + (", ".join(parts) or "not measured yet")


def age_text(age_s: float) -> str:
    """Say how long ago something was, in the unit that fits."""
    for unit, seconds in (("d", 86_400), ("h", 3600), ("min", 60)):
        if age_s >= seconds:
            return f"{age_s / seconds:.0f} {unit} ago"
    return f"{age_s:.0f} s ago"


def _ms(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"
