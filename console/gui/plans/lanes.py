"""The lanes to work with: stages are selected, dragged and given to other PCs, by mouse or keys. GUI thread."""

from __future__ import annotations

from PySide6.QtCore import QByteArray, QMimeData, QPoint, QPointF, Qt, Signal
from PySide6.QtGui import (
    QContextMenuEvent,
    QDrag,
    QDragEnterEvent,
    QDragMoveEvent,
    QDropEvent,
    QFocusEvent,
    QKeyEvent,
    QMouseEvent,
    QWheelEvent,
)
from PySide6.QtWidgets import QApplication

from console.gui.plans import model
from console.gui.plans.editor import PlanEditor
from console.gui.plans.model import Place
from console.gui.plans.picture import LanesPicture

STAGE_MIME, PC_MIME = "application/x-fallow-stage", "application/x-fallow-pc"
ZOOM_STEP = 1.25


class LanesView(LanesPicture):
    """The mouse drags borders and stages; keys do all of it as well."""

    menu = Signal(object, QPoint)
    """Somebody wants to know what can be done with a stage: its Place, and where on the screen."""
    opened = Signal(str)
    """Somebody wants to see a PC: its id."""

    def __init__(self, editor: PlanEditor) -> None:
        super().__init__(editor)
        self._border: Place | None = None
        self._turn = 0
        self._pressed: QPointF | None = None
        self.setMouseTracking(True)
        self.setAcceptDrops(True)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)

    # Keys

    def keyPressEvent(self, event: QKeyEvent) -> None:  # noqa: N802 - Qt's name
        """Arrows select; with Ctrl or Shift they move the border at the end of the stage."""
        key = event.key()
        steps = {Qt.Key.Key_Left.value: (0, -1), Qt.Key.Key_Right.value: (0, 1)}
        steps |= {Qt.Key.Key_Up.value: (-1, 0), Qt.Key.Key_Down.value: (1, 0)}
        step = steps.get(key)
        moves = event.modifiers() & (Qt.KeyboardModifier.ControlModifier | Qt.KeyboardModifier.ShiftModifier)
        if step is not None and moves and step[1]:
            self.nudge(step[1])
        elif step is not None:
            self._go(*step)
        elif key in {Qt.Key.Key_Delete.value, Qt.Key.Key_Backspace.value}:
            self.merge()
        elif key in {Qt.Key.Key_Return.value, Qt.Key.Key_Enter.value} and self.selected is not None:
            self._open_selected()
        else:
            super().keyPressEvent(event)

    def focusNextPrevChild(self, next: bool) -> bool:  # noqa: A002, N802 - Qt's names
        """Tab goes from stage to stage, and after the last one on to the next field."""
        return self._tab(1 if next else -1) or super().focusNextPrevChild(next)

    def focusInEvent(self, event: QFocusEvent) -> None:  # noqa: N802 - Qt's name
        """Select a stage when somebody comes by keys."""
        super().focusInEvent(event)
        plan = self.editor.plan
        if plan is None or not plan.lanes:
            return
        if event.reason() == Qt.FocusReason.TabFocusReason:
            self.select(Place(0, 0))
        elif event.reason() == Qt.FocusReason.BacktabFocusReason:
            self.select(Place(len(plan.lanes) - 1, len(plan.lanes[-1]) - 1))

    def nudge(self, layers: int) -> None:
        """Move the border at the end of the selected stage; of the last one the border at its beginning."""
        plan, place = self.editor.plan, self.selected
        stage = None if plan is None or place is None else plan.at(place)
        if plan is None or place is None or stage is None:
            return
        if place.stage == len(plan.lanes[place.pipeline]) - 1:
            place = place._replace(stage=place.stage - 1)
            stage = plan.at(place)
        if stage is not None and place.stage >= 0:
            self._move_border(place, stage.last + layers, "keys")

    def merge(self) -> None:
        """Let the selected stage take over the next one's layers; the last one those of the one before."""
        if self.editor.plan is not None and self.selected is not None:
            place = self.selected
            last = place.stage == len(self.editor.plan.lanes[place.pipeline]) - 1
            if self.editor.do("Merge two stages", model.merge(self.editor.plan, place)) and last:
                self.select(place._replace(stage=max(0, place.stage - 1)))

    def _tab(self, step: int) -> bool:
        plan = self.editor.plan
        if plan is None or self.selected is None:
            return False
        places = list(plan.used.values())
        index = places.index(self.selected) + step if self.selected in places else -1
        if not 0 <= index < len(places):
            return False
        self.select(places[index])
        return True

    def _go(self, lanes: int, stages: int) -> None:
        plan = self.editor.plan
        if plan is None or not plan.lanes:
            return
        if self.selected is None:
            self.select(Place(0, 0))
            return
        pipeline = min(max(0, self.selected.pipeline + lanes), len(plan.lanes) - 1)
        stage = min(max(0, self.selected.stage + stages), len(plan.lanes[pipeline]) - 1)
        self.select(Place(pipeline, stage))

    def _open_selected(self) -> None:
        if self.layout_ is not None and self.selected is not None:
            box = self.layout_.lanes[self.selected.pipeline].stages[self.selected.stage]
            at = self.mapFromScene(box.x + min(box.width / 2, box.height), box.y + box.height / 2)
            self.menu.emit(self.selected, self.viewport().mapToGlobal(at))

    # The mouse

    def mousePressEvent(self, event: QMouseEvent) -> None:  # noqa: N802 - Qt's name
        """Take a border, or select a stage."""
        if self.layout_ is None or event.button() != Qt.MouseButton.LeftButton:
            return
        at = self.mapToScene(event.position().toPoint())
        self._border = self.layout_.border_at(at.x(), at.y())
        if self._border is not None:
            self._turn += 1
            return
        place = self.layout_.stage_at(at.x(), at.y())
        self.select(place)
        self._pressed = event.position() if place is not None else None

    def mouseMoveEvent(self, event: QMouseEvent) -> None:  # noqa: N802 - Qt's name
        """Move the border that is held, or begin to drag the stage."""
        if self.layout_ is None:
            return
        at = self.mapToScene(event.position().toPoint())
        if self._border is not None:
            self._move_border(self._border, self.layout_.border_near(at.x()), f"drag {self._turn}")
            return
        over = self.layout_.border_at(at.x(), at.y()) is not None
        self.viewport().setCursor(Qt.CursorShape.SplitHCursor if over else Qt.CursorShape.ArrowCursor)
        far = QApplication.startDragDistance()
        if self._pressed is not None and (event.position() - self._pressed).manhattanLength() >= far:
            self._pressed = None
            self._drag()

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:  # noqa: N802 - Qt's name
        """Let go."""
        self._border = self._pressed = None

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:  # noqa: N802 - Qt's name
        """Show the PC."""
        plan = self.editor.plan
        stage = None if plan is None or self.selected is None else plan.at(self.selected)
        if stage is not None:
            self.opened.emit(stage.device_id)

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:  # noqa: N802 - Qt's name
        """Say what can be done."""
        if event.reason() != QContextMenuEvent.Reason.Mouse:
            self._open_selected()
            return
        at = self.mapToScene(event.pos())
        place = None if self.layout_ is None else self.layout_.stage_at(at.x(), at.y())
        if place is not None:
            self.select(place)
            self.menu.emit(place, event.globalPos())

    def wheelEvent(self, event: QWheelEvent) -> None:  # noqa: N802 - Qt's name
        """With Ctrl: wider or narrower layers."""
        if event.modifiers() & Qt.KeyboardModifier.ControlModifier:
            self.zoom(ZOOM_STEP if event.angleDelta().y() > 0 else 1 / ZOOM_STEP)
            return
        super().wheelEvent(event)

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:  # noqa: N802 - Qt's name
        """Take stages and PCs."""
        self._weigh(event)

    def dragMoveEvent(self, event: QDragMoveEvent) -> None:  # noqa: N802 - Qt's name
        """Take them over a stage."""
        self._weigh(event)

    def dropEvent(self, event: QDropEvent) -> None:  # noqa: N802 - Qt's name
        """Give the stage under the mouse to a PC, or let two stages change PCs."""
        at = self.mapToScene(event.position().toPoint())
        place = None if self.layout_ is None else self.layout_.stage_at(at.x(), at.y())
        device_id = mime_text(event.mimeData(), PC_MIME) or mime_text(event.mimeData(), STAGE_MIME)
        if place is not None and device_id:
            event.acceptProposedAction()
            self.give(place, device_id)

    def give(self, place: Place, device_id: str) -> None:
        """Give a stage to a PC."""
        if self.editor.plan is not None:
            name = self.editor.name_of(device_id)
            self.editor.do(f"Give a stage to {name}", model.give(self.editor.plan, place, device_id))

    def _weigh(self, event: QDragMoveEvent) -> None:
        if event.mimeData().hasFormat(PC_MIME) or event.mimeData().hasFormat(STAGE_MIME):
            event.acceptProposedAction()

    def _drag(self) -> None:
        plan = self.editor.plan
        stage = None if plan is None or self.selected is None else plan.at(self.selected)
        if stage is not None:
            drag = QDrag(self)
            drag.setMimeData(mime_of(STAGE_MIME, stage.device_id))
            drag.exec(Qt.DropAction.MoveAction)

    def _move_border(self, place: Place, border: int, key: str) -> None:
        if self.editor.plan is not None:
            changed = model.move_border(self.editor.plan, place, border)
            self.editor.do("Move a border", changed, f"{key} {place.pipeline} {place.stage}")


def mime_of(kind: str, device_id: str) -> QMimeData:
    """Return what is dragged: a PC, or the stage of one."""
    data = QMimeData()
    data.setData(kind, QByteArray(device_id.encode()))
    return data


def mime_text(data: QMimeData, kind: str) -> str:
    """Return what was dragged as one kind; empty for another one."""
    return bytes(data.data(kind).data()).decode("utf-8", "replace") if data.hasFormat(kind) else ""
