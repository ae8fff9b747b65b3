"""The dialog of a delivery: a model's layers to PCs, ring by ring; it goes on when the dialog is closed."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QWidget

from agent.look.widgets import Table, heading, label
from console import calls
from console.api.admin import types as wire
from console.gui.alive import alive
from console.gui.models.follow import Deliveries
from console.gui.models.parts import Bars, Dialog, across, button, say
from console.gui.models.rings import Delivery, headline
from console.gui.page import Desk

ABOUT = (
    "The layers are brought to the PCs before they are needed: to 5 % of them first, then half, then all. If more "
    "than a tenth of a ring fails, it ends there. What has arrived is checked and stays."
)


class DeliverDialog(Dialog):
    """One model's delivery."""

    said = Signal(str, bool)

    def __init__(self, desk: Desk, deliveries: Deliveries, model: str, parent: QWidget) -> None:
        super().__init__(parent, f"Bring {model} to PCs", columns=100, lines=30)
        self._desk, self._deliveries, self._model = desk, deliveries, model
        self.headline = heading("")
        self.bars = Bars()
        self.problems = Table("PCs it could not be brought to", ["PC", "What happened"])
        self.hint = label("Closing this window does not stop the delivery.", quiet=True)
        self.start = button("&Deliver to all connected PCs", self._start)
        self.stop = button("&Stop the delivery", self._stop)
        self.rows.addWidget(label(ABOUT, quiet=True))
        for widget in (self.headline, self.bars, self.problems):
            self.rows.addWidget(widget)
        self.rows.addWidget(self.hint)
        self.rows.addLayout(across(self.start, self.stop, button("Close", self.close), ends=True))
        deliveries.changed.connect(self._show)
        self._show()

    def follow_running(self) -> None:
        """Follow a delivery that is under way, wherever it was begun."""
        known = self._deliveries.find(self._model)
        if known is None or not known.goes_on:
            self._deliveries.watch(self._model)

    def _start(self) -> None:
        self._deliveries.begin(wire.DeliveryRequest(self._model))

    def _stop(self) -> None:
        self._desk.bridge.ask(
            calls.stop_delivery(self._model),
            alive(self, lambda _: self.said.emit(f"{self._model} is not delivered to any more PCs.", False)),
            alive(self, lambda error: self.said.emit(str(error), True)),
        )

    def _show(self, _model: str = "") -> None:
        known = self._deliveries.find(self._model)
        running = known is not None and known.goes_on
        may = self._desk.may("operate")
        self.start.setVisible(may and not running)
        self.stop.setVisible(may and running)
        self.hint.setVisible(running)
        self.problems.setVisible(known is not None and bool(known.problems))
        if known is None:
            say(self.headline, "Nothing is under way.")
            self.bars.show_bars([])
            return
        self._show_delivery(known)

    def _show_delivery(self, delivery: Delivery) -> None:
        text, bad = headline(delivery)
        say(self.headline, text, bad=bad)
        total = max(1, delivery.total)
        tried = len(delivery.has) + len(delivery.problems)
        self.bars.show_bars(
            [
                ("This ring", min(1.0, tried / max(1, delivery.ring_devices)), f"{tried} of {delivery.ring_devices}"),
                ("All PCs", tried / total, f"{tried} of {delivery.total}"),
            ]
        )
        names = {agent.device_id: agent.name for agent in self._desk.agents.latest or []}
        self.problems.show_rows([(names.get(device, device[:8]), why) for device, why in delivery.problems])
