"""What can be done with a plan: each thing once, as an action for buttons, menus and keys. GUI thread."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QAction, QKeySequence
from PySide6.QtWidgets import QMenu, QWidget

from console.gui.plans import model
from console.gui.plans.editor import PlanEditor
from console.gui.plans.lanes import LanesView
from console.gui.plans.model import Edited, Place, Stage
from console.gui.plans.pcs import free_pcs
from console.gui.plans.table import PcsTable
from console.gui.times import ZERO, size_text

MOST_OFFERED = 15
"""How many PCs a menu lists; the table has all of them."""


class Commands:
    """The actions of one page, enabled when they can be done."""

    def __init__(self, page: QWidget, editor: PlanEditor, lanes: LanesView, table: PcsTable) -> None:
        self._page, self._editor, self._lanes, self._table = page, editor, lanes, table
        self.menu: QMenu | None = None
        """What was offered last."""
        self._by_rows = False
        """Whether rows of the table were chosen after a stage was."""
        self.undo = self._action("Undo", "Ctrl+Z", editor.undo)
        self.redo = self._action("Redo", "Ctrl+Y", editor.redo)
        self.redo.setShortcuts([QKeySequence("Ctrl+Y"), QKeySequence("Ctrl+Shift+Z")])
        self.plan = self._action("Let the planner plan", "Ctrl+P", partial(editor.ask_planner, ()), "With any PC")
        self.plan_with = self._action(
            "Plan with selected", "", lambda: editor.ask_planner(table.chosen()), "With these alone"
        )
        self.give = self._action("Give stage", "", self._give, "Give the selected stage to the selected PC")
        self.split = self._action("Split stage", "", self._split, "Give half of the stage to the selected PC")
        self.merge = self._action("Merge stages", "", lanes.merge, "Let the stage take over the next one's layers")
        self.pin = self._action(
            "Pin", "", lambda: self._mark(model.pin, self.pin), "The PC has to take part", checks=True
        )
        self.leave_out = self._action(
            "Leave out",
            "",
            lambda: self._mark(model.leave_out, self.leave_out),
            "The PC must not take part",
            checks=True,
        )
        self.add = self._action("Add pipeline", "", self._add, "Add a pipeline that the selected PC has alone")
        self.remove = self._action("Remove pipeline", "", self._remove, "Remove the pipeline of the selected stage")
        self.wider = self._action("Wider layers", "Ctrl++", lambda: lanes.zoom(1.25))
        self.narrower = self._action("Narrower layers", "Ctrl+-", lambda: lanes.zoom(0.8))
        for signal in (editor.changed, editor.looked, editor.moved):
            signal.connect(self.update)
        lanes.picked.connect(lambda _: self._choose(by_rows=False))
        table.chose.connect(lambda: self._choose(by_rows=True))
        self.update()

    def update(self, _what: object = None) -> None:
        """Enable what can be done now."""
        plan, chosen, stack = self._editor.plan, self._table.chosen(), self._editor.stack
        place, stage = self._selected()
        for action, can, keys, what in (
            (self.undo, stack.canUndo(), "Ctrl+Z", stack.undoText()),
            (self.redo, stack.canRedo(), "Ctrl+Y", stack.redoText()),
        ):
            action.setEnabled(can)
            action.setToolTip(f"{action.text()}: {what} ({keys})" if can else action.text())
        free = plan is not None and len(chosen) == 1 and chosen[0] not in plan.used
        lane = 0 if plan is None or place is None else len(plan.lanes[place.pipeline])
        self.plan.setEnabled(plan is not None)
        self.plan_with.setEnabled(plan is not None and bool(chosen))
        self.give.setEnabled(stage is not None and len(chosen) == 1 and chosen[0] != stage.device_id)
        self.split.setEnabled(stage is not None and free and stage.last - stage.first > 1)
        self.merge.setEnabled(lane > 1)
        self.add.setEnabled(free)
        self.remove.setEnabled(plan is not None and place is not None and len(plan.lanes) > 1)
        marked = self._marked()
        for action, those in ((self.pin, "pinned"), (self.leave_out, "excluded")):
            action.setEnabled(plan is not None and bool(marked))
            action.setChecked(bool(marked) and plan is not None and set(marked) <= getattr(plan, those))

    def _choose(self, *, by_rows: bool) -> None:
        self._by_rows = by_rows
        self.update()

    def open_menu(self, place: Place, where: QPoint) -> None:
        """Offer what can be done with a stage."""
        plan, stage = self._editor.plan, None if self._editor.plan is None else self._editor.plan.at(place)
        if plan is None or stage is None:
            return
        menu = self.menu = QMenu(self._page)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        for text, edit in (("Give to", model.give), ("Split with", model.split)):
            self._offer(menu, plan, place, text, edit)
        menu.addAction(self.merge)
        menu.addSeparator()
        menu.addAction(self.pin)
        menu.addAction(self.leave_out)
        menu.addSeparator()
        menu.addAction("Show the PC").triggered.connect(lambda: self._lanes.opened.emit(stage.device_id))
        menu.popup(where)

    def _offer(
        self, menu: QMenu, plan: Edited, place: Place, text: str, edit: Callable[[Edited, Place, str], Edited]
    ) -> None:
        free = free_pcs(plan, self._editor.found)
        offered = menu.addMenu(text)
        offered.setEnabled(bool(free))
        for pc in free[:MOST_OFFERED]:
            action = offered.addAction(f"{pc.name} ({size_text(pc.budget_bytes, ZERO)}, {pc.layer_ms:.2f} ms a layer)")
            done = f"{text} {pc.name}"
            action.triggered.connect(
                lambda _checked=False, pc=pc, done=done: self._editor.do(done, edit(plan, place, pc.device_id))
            )
        if len(free) > MOST_OFFERED:
            offered.addAction(f"{len(free) - MOST_OFFERED} more are in the table").setEnabled(False)

    def _selected(self) -> tuple[Place | None, Stage | None]:
        plan, place = self._editor.plan, self._lanes.selected
        return (None, None) if plan is None or place is None else (place, plan.at(place))

    def _marked(self) -> list[str]:
        """Return the PCs that are meant: those of the table or that of the stage, whichever was chosen last."""
        _, stage = self._selected()
        chosen = self._table.chosen()
        if chosen and (self._by_rows or stage is None):
            return chosen
        return [] if stage is None else [stage.device_id]

    def _mark(self, edit: Callable[[Edited, str, bool], Edited], action: QAction) -> None:
        plan = self._editor.plan
        if plan is None:
            return
        for device_id in self._marked():
            plan = edit(plan, device_id, action.isChecked())
        self._editor.do(action.text(), plan)
        self.update()

    def _give(self) -> None:
        place, _ = self._selected()
        if place is not None:
            self._lanes.give(place, self._table.chosen()[0])

    def _split(self) -> None:
        place, _ = self._selected()
        if place is not None and self._editor.plan is not None:
            self._editor.do("Split a stage", model.split(self._editor.plan, place, self._table.chosen()[0]))

    def _add(self) -> None:
        if self._editor.plan is not None:
            self._editor.do("Add a pipeline", model.add_pipeline(self._editor.plan, self._table.chosen()[0]))

    def _remove(self) -> None:
        place, _ = self._selected()
        if place is not None and self._editor.plan is not None:
            self._editor.do("Remove a pipeline", model.remove_pipeline(self._editor.plan, place.pipeline))

    def _action(
        self, text: str, keys: str, do: Callable[[], object], tip: str = "", *, checks: bool = False
    ) -> QAction:
        action = QAction(text, self._page)
        action.setCheckable(checks)
        action.setToolTip(f"{tip or text} ({keys})" if keys else tip or text)
        if keys:
            action.setShortcut(QKeySequence(keys))
        action.triggered.connect(lambda _checked: do())
        self._own(action)
        return action

    def _own(self, action: QAction) -> None:
        """Let its keys work on this page alone."""
        action.setShortcutContext(Qt.ShortcutContext.WidgetWithChildrenShortcut)
        self._page.addAction(action)
