"""Deployments and deliveries this window follows: they go on whether their dialog is open or not. GUI thread."""

from __future__ import annotations

import time
from dataclasses import replace

from PySide6.QtCore import QObject, Signal

from console import calls
from console.api.admin import types as wire
from console.call import LineCall
from console.errors import ClientError, ServiceRefused
from console.fleet.delivery import DeliveryEnded, DeliveryEvent
from console.gui.alive import alive
from console.gui.bridge import Bridge
from console.gui.models import rings, rollout


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
        known = self._known[model]
        if error is not None and known.end is None:
            if isinstance(error, ServiceRefused):
                self._known[model] = replace(known, end=wire.Broken(error.code or "refused", str(error)))
            else:  # what the service began goes on, whether it is heard of or not
                self._known[model] = replace(known, lost=str(error))
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

    def begin(self, request: wire.DeliveryRequest) -> None:
        """Begin a delivery, or follow the same one that is under way."""
        self._follow(request.model, calls.deliver(request))

    def watch(self, model: str) -> None:
        """Follow the delivery that is under way; nothing is begun."""
        self._follow(model, calls.follow_delivery(model))

    def _follow(self, model: str, call: LineCall[DeliveryEvent]) -> None:
        self._known[model] = rings.Delivery(model)
        self._bridge.follow(
            call,
            alive(self, lambda event: self._take(model, event)),
            alive(self, lambda error: self._end(model, error)),
        )
        self.changed.emit(model)

    def _take(self, model: str, event: DeliveryEvent) -> None:
        self._known[model] = rings.after(self._known[model], event)
        self.changed.emit(model)

    def _end(self, model: str, error: ClientError | None) -> None:
        known = self._known[model]
        if error is not None and known.end is None:
            if isinstance(error, ServiceRefused):
                end = DeliveryEnded(len(known.has), len(known.problems), str(error))
                self._known[model] = replace(known, end=end)
            else:
                self._known[model] = replace(known, lost=str(error))
        self.changed.emit(model)
