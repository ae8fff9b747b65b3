"""A plan as lanes to look at: stages side by side, one of them selected. GUI thread."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QRectF, Qt, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QFrame, QGraphicsScene, QGraphicsView

from agent.look import palettes
from agent.look.widgets import announce
from console.gui.plans import words
from console.gui.plans.drawing import Ink, LaneItem, LaneLook, StageItem, StageLook
from console.gui.plans.editor import PlanEditor
from console.gui.plans.geometry import Layout, lay_out
from console.gui.plans.model import Edited, Place, Stage

MOST_ZOOM = 8.0


class LanesPicture(QGraphicsView):
    """Draws an editor's plan anew whenever it, or what is said of it, changes."""

    picked = Signal(object)
    """The selected stage is another one: a Place, or None."""

    def __init__(self, editor: PlanEditor) -> None:
        super().__init__()
        self.setScene(QGraphicsScene(self))
        self.editor = editor
        self.selected: Place | None = None
        self.layout_: Layout | None = None
        self._zoom = 1.0
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setAlignment(Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignTop)
        self.setAccessibleName("Stages of the plan")
        editor.changed.connect(self.rebuild)
        editor.looked.connect(self.rebuild)

    def rebuild(self) -> None:
        """Draw the plan as it is now."""
        scene, plan = self.scene(), self.editor.plan
        scene.clear()
        self.layout_ = None
        if plan is None:
            return
        if self.selected is not None and plan.at(self.selected) is None:
            self.selected = None
            self.picked.emit(None)
        line = float(self.fontMetrics().height())
        width = self.viewport().width() * self._zoom
        layout = self.layout_ = lay_out(plan, self.editor.live, width, line)
        ink = Ink(palettes.COLOURS[palettes.scheme_of(self.palette())], self.font(), line)
        for number, boxes in enumerate(layout.lanes):
            found = self.editor.found
            checked = found.pipelines[number] if found is not None and number < len(found.pipelines) else None
            rate = "" if checked is None else words.lane_rate(checked)
            live = self.editor.live
            lane = live.lanes[number] if live is not None and number < len(live.lanes) else ()
            running = [self.editor.name_of(stage.device_id) for stage in lane]
            scene.addItem(LaneItem(boxes, LaneLook(f"Pipeline {number + 1}", rate, running), ink))
            for index, (box, stage) in enumerate(zip(boxes.stages, plan.lanes[number], strict=True)):
                look = self._look(plan, Place(number, index), stage)
                scene.addItem(StageItem(box, look, ink))
        scene.setSceneRect(QRectF(0, 0, width, layout.height))
        self._describe()

    def select(self, place: Place | None) -> None:
        """Select a stage and bring it into sight."""
        if place == self.selected:
            return
        self.selected = place
        self.rebuild()
        if place is not None and self.layout_ is not None:
            box = self.layout_.lanes[place.pipeline].stages[place.stage]
            self.ensureVisible(QRectF(box.x, box.y, min(box.width, self.viewport().width()), box.height), 8, 8)
            announce(self, self.sentence(place))
        self.picked.emit(place)

    def sentence(self, place: Place) -> str:
        """Say everything of a stage."""
        plan = self.editor.plan
        stage = None if plan is None else plan.at(place)
        if stage is None:
            return ""
        faults = words.faults_at(self.editor.found, *place)
        checked = self.editor.checked_at(place, stage)
        return words.stage_sentence(self.editor.name_of(stage.device_id), *place, checked, faults)

    def zoom(self, factor: float) -> None:
        """Show layers wider or narrower; never narrower than there is room for."""
        self._zoom = min(MOST_ZOOM, max(1.0, self._zoom * factor))
        self.rebuild()

    def _look(self, plan: Edited, place: Place, stage: Stage) -> StageLook:
        checked = self.editor.checked_at(place, stage)
        same = checked is not None and (checked.stage.first, checked.stage.last) == (stage.first, stage.last)
        costs = checked if same else None
        live = self.editor.live
        where = None if live is None else live.used.get(stage.device_id)
        runs = None if live is None or where is None else live.at(where)
        return StageLook(
            name=self.editor.name_of(stage.device_id),
            layers=words.layers(stage.first, stage.last),
            memory="" if costs is None or not costs.stage.memory_bytes else words.memory(costs),
            time=""
            if costs is None or not costs.stage.ms
            else f"{costs.stage.ms:.1f} ms + {costs.stage.hop_ms:.1f} ms hop",
            filled=0.0 if costs is None else words.filled(costs),
            wrong=bool(words.faults_at(self.editor.found, *place)),
            pinned=stage.device_id in plan.pinned,
            new=runs is None or (runs.first, runs.last) != (stage.first, stage.last),
            selected=place == self.selected,
            words=self.sentence(place),
        )

    def _describe(self) -> None:
        said = "No stage is selected." if self.selected is None else self.sentence(self.selected)
        self.setAccessibleDescription(said)

    def resizeEvent(self, event: QResizeEvent) -> None:  # noqa: N802 - Qt's name
        """Use the room there is."""
        super().resizeEvent(event)
        self.rebuild()

    def changeEvent(self, event: QEvent) -> None:  # noqa: N802 - Qt's name
        """Follow other colours and letters."""
        super().changeEvent(event)
        if event.type() in {QEvent.Type.PaletteChange, QEvent.Type.FontChange}:
            self.rebuild()
