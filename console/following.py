"""How the command line shows what happens while somebody waits: a deployment, and a delivery."""

from __future__ import annotations

from typing import Self

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn

from console.api.admin import types as wire
from console.fleet.delivery import Delivered, DeliveryEvent, RingStarted
from shard_export.library.counts import counted


def delivery_text(view: wire.DeliveryView) -> str:
    """Say how far a delivery is."""
    layers = f"layers {view.first} to {view.last - 1}"
    has = f"{view.delivered} of {counted(view.total, 'PC has', 'PCs have')} it"
    return f"{view.model}, {layers}: {has}, {view.failed} failed"


def delivery_line(event: DeliveryEvent) -> str:
    """Say one event of a delivery."""
    if isinstance(event, RingStarted):
        return f"Ring {event.ring}: {event.devices} of {counted(event.total, 'PC')}"
    if isinstance(event, Delivered):
        return f"  {event.device_id}: {event.problem or 'has it'}"
    return f"{counted(event.delivered, 'PC has', 'PCs have')} it, {event.failed} do not. {event.stopped}".rstrip()


class DeployView:
    """Shows a deployment as it happens: a bar per stage on a terminal, lines elsewhere."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress = Progress(
            TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn(), console=console
        )
        self._bars: dict[int, TaskID] = {}

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._console.is_terminal:
            self._progress.stop()

    def show(self, event: wire.DeployEvent) -> None:
        """Show one event; Broken is left to the caller, whose error it becomes."""
        if isinstance(event, wire.Planned):
            for stage in event.stages:
                self._say(f"Stage {stage.stage}: layers {stage.first}-{stage.last - 1} on {stage.device_name}")
            for reason in event.reasons:
                self._say(f"  {reason}")
        elif isinstance(event, wire.Loading) and self._console.is_terminal:
            self._bar(event)
        elif isinstance(event, wire.StageUp):
            fused = "fused" if event.fused else "NOT fused"
            self._say(
                f"Stage {event.stage} is up on {event.device_name}: {event.engine}, {fused}, {event.load_ms:.0f} ms"
                + (f" ({event.note})" if event.note else "")
            )
        elif isinstance(event, wire.Note):
            self._say(event.message)
        elif isinstance(event, wire.Ready):
            self._say(f"{event.model} is ready: one token through all stages took {event.probe_ms:.0f} ms")

    def _bar(self, event: wire.Loading) -> None:
        if event.stage not in self._bars:
            self._bars[event.stage] = self._progress.add_task(event.device_name)
        self._progress.update(
            self._bars[event.stage],
            description=f"{event.device_name}: {event.phase}",
            total=event.total,
            completed=event.done,
        )

    def _say(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)
