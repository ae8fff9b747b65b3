"""The three first steps as somebody sees them, until all are done or nobody wants to see them any more."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QPushButton, QVBoxLayout

from agent.look.widgets import heading, label
from console.gui.overview.tour import TourStep

FILE = "tour-hidden"


class TourView(QFrame):
    """GUI thread. `folder` keeps that it was hidden."""

    wants = Signal(str, str)

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._file = folder / FILE
        self._steps: Sequence[TourStep] = ()
        self._unwanted = self._file.exists()
        self.setFrameShape(QFrame.Shape.StyledPanel)
        self.setAccessibleName("First steps")
        self.hide_button = QPushButton("&Hide these steps")
        self.hide_button.clicked.connect(self._hide_for_good)
        self.texts: list[QLabel] = []
        self.buttons: list[QPushButton] = []
        top = QHBoxLayout()
        top.addWidget(heading("First steps"), 1)
        top.addWidget(self.hide_button)
        rows = QVBoxLayout(self)
        rows.addLayout(top)
        for place in range(3):
            self.texts.append(label())
            self.buttons.append(QPushButton())
            self.buttons[-1].clicked.connect(lambda _=False, place=place: self._go(place))
            across = QHBoxLayout()
            across.addWidget(self.texts[-1], 1)
            across.addWidget(self.buttons[-1], 0, Qt.AlignmentFlag.AlignTop)
            rows.addLayout(across)
        self.hide()

    @property
    def is_wanted(self) -> bool:
        """Whether there is still a step to do, and somebody may want to see it."""
        return not self._unwanted and any(not step.done for step in self._steps)

    def show_steps(self, steps: Sequence[TourStep]) -> None:
        """Show how far it is."""
        self._steps = steps
        following = next((place for place, step in enumerate(steps) if not step.done), -1)
        for place, (step, text, button) in enumerate(zip(steps, self.texts, self.buttons, strict=True)):
            mark = "✓" if step.done else f"{place + 1}."
            text.setText(f"{mark}  {step.text}\n     {step.about}")
            text.setAccessibleName(f"{step.text}: {'done' if step.done else 'to do'}. {step.about}")
            button.setText(step.button)
            button.setVisible(not step.done)
            button.setDefault(place == following)
        self.setVisible(self.is_wanted)

    def _go(self, place: int) -> None:
        self.wants.emit(self._steps[place].page, self._steps[place].what)

    def _hide_for_good(self) -> None:
        self._unwanted = True
        self.hide()
        # Where it cannot be kept, the steps come again at the next start.
        with contextlib.suppress(OSError):
            self._file.parent.mkdir(parents=True, exist_ok=True)
            self._file.touch()
