"""Deployments and deliveries this window follows: they go on whether their dialog is open or not. GUI thread."""

from __future__ import annotations

import time
from dataclasses import replace

from PySide6.QtCore import QObject, Signal

from console import calls
from console.api.admin import types as wire
from console.errors import ClientError
from console.fleet.delivery import DeliveryEvent
from console.gui.bridge import Bridge
from console.gui.models import rings, rollout
from console.gui.models.parts import alive


class Rollouts(QObject):
    """The deployments that were begun here, by model."""

    changed = Signal(str)
    """Something was heard of a model's deployment."""
    ended = Signal(str, bool)
    """What came of one, in a sentence, and whether it failed."""

    def __init__(self, bridge: Bridge, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._bridge = bridge
        self._known: dict[str, rollout.Rollout] = {}

    def find(self, model: str) -> rollout.Rollout | None:
        """Return the last deployment of a model that was begun here."""
        return self._known.get(model)

    def begin(self, request: wire.DeployRequest) -> None:
        """Ask for a deployment and follow it."""
        model = request.model
        self._known[model] = rollout.Rollout(request, heard_s=time.monotonic())
        self._bridge.follow(
            calls.deploy(request),
            alive(self, lambda event: self._take(model, event)),
            alive(self, lambda error: self._end(model, error)),
        )
        self.changed.emit(model)

    def _take(self, model: str, event: wire.DeployEvent) -> None:
        self._known[model] = rollout.after(self._known[model], event, time.monotonic())
        self.changed.emit(model)

    def _end(self, model: str, error: ClientError | None) -> None:
        if error is not None and self._known[model].end is None:
            self._known[model] = replace(self._known[model], lost=str(error))
        text, failed = rollout.headline(self._known[model], time.monotonic())
        self.changed.emit(model)
        self.ended.emit(f"{model}: {text}", failed)


class Deliveries(QObject):
    """The deliveries that are followed here, by model."""

    changed = Signal(str)

    def __init__(self, bridge: Bridge, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._bridge = bridge
        self._known: dict[str, rings.Delivery] = {}

    def find(self, model: str) -> rings.Delivery | None:
        """Return the last delivery of a model that was followed here."""
        return self._known.get(model)

    def follow(self, request: wire.DeliveryRequest) -> None:
        """Begin a delivery, or follow the one that is under way."""
        model = request.model
        self._known[model] = rings.Delivery(model)
        self._bridge.follow(
            calls.deliver(request),
            alive(self, lambda event: self._take(model, event)),
            alive(self, lambda error: self._end(model, error)),
        )
        self.changed.emit(model)

    def _take(self, model: str, event: DeliveryEvent) -> None:
        self._known[model] = rings.after(self._known[model], event)
        self.changed.emit(model)

    def _end(self, model: str, error: ClientError | None) -> None:
        if error is not None and self._known[model].end is None:
            self._known[model] = replace(self._known[model], lost=str(error))
        self.changed.emit(model)
