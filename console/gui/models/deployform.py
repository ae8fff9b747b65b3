"""The fields of a deployment."""

from __future__ import annotations

from typing import get_args

import msgspec
from PySide6.QtCore import Signal
from PySide6.QtWidgets import QComboBox, QFormLayout, QSpinBox, QWidget

from agent.stage.types import EngineChoice
from console.api.admin import types as wire
from console.gui.models.parts import field

ENGINES: dict[str, str] = {"auto": "Chosen by each PC (recommended)"}
NO_MODEL = "No model is chosen"


class DeployForm(QWidget):
    """What is asked for. `changed` comes with every change; what is not shown stays as it was asked for before."""

    changed = Signal()

    def __init__(self, libraries: list[wire.Library]) -> None:
        super().__init__()
        self._former: wire.DeployRequest | None = None
        self.model = QComboBox()
        self.model.setPlaceholderText(NO_MODEL)  # without one the first that is offered would be chosen
        self.context = _number(16, 1 << 20, 2048, " tokens")
        self.context.setSingleStep(512)
        self.streams = _number(1, 256, 8)
        self.stages = _number(0, 256, 0)
        self.stages.setSpecialValueText("Chosen by the planner")
        self.replicas = _number(1, 64, 1)
        self.standbys = _number(0, 64, 0)
        self.standby = _choice({"warm": "with the layers on their disk", "hot": "with a stage loaded"})
        self.numerics = _choice({"fast": "Fast", "exact": "Exact: the same text on any PCs, slower"})
        self.engine = _choice({name: ENGINES.get(name, name) for name in get_args(EngineChoice)})
        self.draft = _choice({"lookup": "From the text so far (recommended)", "none": "Off"})
        self.offer(libraries)
        form = QFormLayout(self)
        form.setContentsMargins(0, 0, 0, 0)
        for text, widget in (
            ("Model", self.model),
            ("Longest conversation", self.context),
            ("Answers at once", self.streams),
            ("PCs that share it", self.stages),
            ("Pipelines side by side", self.replicas),
            ("PCs in reserve", self.standbys),
            ("They stand by", self.standby),
            ("Numerics", self.numerics),
            ("Engine", self.engine),
            ("Guessing ahead", self.draft),
        ):
            field(form, text, widget)
            if isinstance(widget, QComboBox):
                widget.currentIndexChanged.connect(lambda _: self.changed.emit())
            else:
                widget.valueChanged.connect(lambda _: self.changed.emit())

    def offer(self, libraries: list[wire.Library]) -> None:
        """Offer the usable ones that are not offered yet; what is chosen stays."""
        for library in libraries:
            if library.problem:
                continue
            if library.role == "draft":
                self._offer_draft(library.model_id)
            elif self.model.findData(library.model_id) < 0:
                self.model.addItem(library.model_id, library.model_id)

    def choose(self, model: str) -> bool:
        """Choose a model, or none if it is not offered. Returns whether it is."""
        place = self.model.findData(model)
        self.model.setCurrentIndex(place)
        return place >= 0

    def begin_with(self, request: wire.DeployRequest) -> None:
        """Begin with what was asked for a model before."""
        self._former = request
        if request.draft not in {"lookup", "none"}:
            self._offer_draft(request.draft)
        for number, value in (
            (self.context, request.context),
            (self.streams, request.streams),
            (self.stages, request.stages or 0),
            (self.replicas, request.replicas),
            (self.standbys, request.standbys),
        ):
            number.setValue(value)
        for box, chosen in (
            (self.standby, request.standby),
            (self.numerics, request.numerics),
            (self.engine, request.engine),
            (self.draft, request.draft),
        ):
            box.setCurrentIndex(max(0, box.findData(chosen)))

    @property
    def former(self) -> wire.DeployRequest | None:
        """What was asked for the chosen model before."""
        former = self._former
        return former if former is not None and former.model == self.model.currentData() else None

    def request(self) -> wire.DeployRequest:
        """Return what is asked for, while a model is chosen. A plan made by hand is not asked for again."""
        return msgspec.structs.replace(
            self.former or wire.DeployRequest(self.model.currentData()),
            stages=self.stages.value() or None,
            numerics=self.numerics.currentData(),
            engine=self.engine.currentData(),
            context=self.context.value(),
            streams=self.streams.value(),
            draft=self.draft.currentData(),
            standbys=self.standbys.value(),
            standby=self.standby.currentData(),
            replicas=self.replicas.value(),
            plan=[],
        )

    def _offer_draft(self, model: str) -> None:
        if self.draft.findData(model) < 0:
            self.draft.addItem(f"By the draft model {model}", model)


def _number(least: int, most: int, value: int, suffix: str = "") -> QSpinBox:
    made = QSpinBox()
    made.setRange(least, most)
    made.setValue(value)
    made.setSuffix(suffix)
    return made


def _choice(items: dict[str, str]) -> QComboBox:
    made = QComboBox()
    for value, text in items.items():
        made.addItem(text, value)
    return made
