"""The model that the open chat asks. GUI thread."""

from __future__ import annotations

from PySide6.QtWidgets import QComboBox

from console.chat.window.desk import Desk


class ModelBox(QComboBox):
    """Shows which models there are and which one the open chat asks; lets somebody pick another."""

    def __init__(self, desk: Desk) -> None:
        super().__init__()
        self._desk = desk
        self.setAccessibleName("Model")
        self.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToContents)
        self.activated.connect(self._pick)
        desk.models_changed.connect(self.show_models)

    def show_models(self) -> None:
        """Show what can be asked now; what the chat asks is shown also while it is not there."""
        wanted = self._desk.setup.model
        known = [model.id for model in self._desk.models]
        names = [*known, *([wanted] if wanted and wanted not in known else [])]
        texts = [name if name in known and self._ready(name) else f"{name} (not there now)" for name in names]
        if texts != [self.itemText(place) for place in range(self.count())]:
            self.clear()
            for name, text in zip(names, texts, strict=True):
                self.addItem(text, name)
        self.setCurrentIndex(names.index(wanted) if wanted in names else -1)
        self.setPlaceholderText("No model")

    def _pick(self, place: int) -> None:
        self._desk.pick_model(self.itemData(place))

    def _ready(self, name: str) -> bool:
        model = self._desk.model(name)
        return model is not None and model.ready
