"""The plan that is edited: undo and redo, and a check by the service soon after each change. GUI thread."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from PySide6.QtCore import QObject, QTimer, Signal
from PySide6.QtGui import QUndoCommand, QUndoStack

from agent.look.loop import Job
from console import calls
from console.api.admin.plan_types import PlanRequest, Plans
from console.errors import ClientError
from console.gui.alive import alive
from console.gui.bridge import Bridge
from console.gui.plans import model, words
from console.gui.plans.model import Edited, Place, Stage
from console.planner.given import CheckedPlan, CheckedStage

CHECK_AFTER_MS = 120
"""A border that is dragged changes many times a second; this long after the last change the service is asked."""


class Questions:
    """What the service is asked for an editor: one check and one plan at a time."""

    def __init__(self) -> None:
        self.check: Job | None = None
        self.plan: Job | None = None

    def drop_check(self) -> None:
        """Let no answer to the check come any more."""
        if self.check is not None:
            self.check.cancel()
            self.check = None

    def end(self) -> None:
        """Let no answer come any more."""
        self.drop_check()
        if self.plan is not None:
            self.plan.cancel()
            self.plan = None


class PlanEditor(QObject):
    """Holds the plan and what the service says of it. Every edit goes through `do`."""

    changed = Signal()
    """The plan is another one; what was checked is of the former one until `looked`."""
    looked = Signal()
    """There is something new to say of the plan: `found`, or `problem`."""
    moved = Signal()
    """Something else can be undone or redone."""
    said = Signal(str, bool)
    """What came of a question, and whether it failed."""

    def __init__(self, bridge: Bridge, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._bridge = bridge
        self._stacks: dict[str, QUndoStack] = {}
        self._left: dict[str, Edited] = {}
        """The plans of models that were looked at before."""
        self.stack = self._stack_of("")
        """What can be undone of the model that is looked at."""
        self.plan: Edited | None = None
        self.live: Edited | None = None
        """What runs; None: nothing of the model does."""
        self.found: CheckedPlan | None = None
        self.problem = ""
        """Why the service did not check the plan."""
        self.reasons: list[str] = []
        """Why the planner planned it as it is, until it is changed."""
        self.names: dict[str, str] = {}
        self.questions = Questions()
        self._in_sight, self._waits = True, False
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setInterval(CHECK_AFTER_MS)
        self._timer.timeout.connect(self.check)

    # The plan

    def open(self, plan: Edited, live: Edited | None) -> None:
        """Begin with a plan; what was done before cannot be undone any more."""
        self.forget()
        self.stack.clear()
        self.live = live
        self.show_plan(plan)

    def turn(self, plan: Edited, live: Edited | None) -> None:
        """Look at another model: go on with what was changed of it, if anything was, else begin with `plan`."""
        if self.plan is not None:
            self._left[self.plan.model] = self.plan
        self.stack = self._stack_of(plan.model)
        left = self._left.get(plan.model)
        if self.stack.count() and left is not None and left.layers == plan.layers:
            self.forget()
            self.live = live
            self.show_plan(left)
        else:
            self.open(plan, live)
        self.moved.emit()

    def _stack_of(self, model_id: str) -> QUndoStack:
        if model_id not in self._stacks:
            stack = self._stacks[model_id] = QUndoStack(self)
            # Through a method of this: the stack's last words, when both are deleted, reach nobody any more.
            stack.indexChanged.connect(self._tell)
        return self._stacks[model_id]

    def do(self, text: str, plan: Edited, key: str = "") -> bool:
        """Go on with another plan, which can be undone; changes with the same `key` are undone together.

        False when the plan is the same: there is nothing to undo.
        """
        if self.plan is None or plan == self.plan:
            return False
        self.stack.push(_Edit(self, text, self.plan, plan, key))
        return True

    def show_plan(self, plan: Edited) -> None:
        """Take a plan as it is. Undo and redo come here."""
        self.plan, self.reasons = plan, []
        self.questions.drop_check()
        self._timer.start()
        self.changed.emit()

    def undo(self) -> None:
        """Take the last edit of this model's plan back."""
        self.stack.undo()

    def redo(self) -> None:
        """Do once more what was taken back."""
        self.stack.redo()

    def discard(self) -> None:
        """Go back to what runs, which can be undone."""
        if self.live is not None:
            self.do("Discard the changes", self.live)
        else:
            self.stack.setIndex(0)

    @property
    def is_changed(self) -> bool:
        """Whether the plan differs from what runs."""
        return self.plan is not None and bool(self.plan.lanes) and self.plan != self.live

    @property
    def is_checked(self) -> bool:
        """Whether `found` is of the plan as it is."""
        waits = self._waits or self._timer.isActive() or self.questions.check is not None
        return self.found is not None and not waits

    @property
    def faults(self) -> list[str]:
        """Why the plan cannot be deployed, as far as that is known."""
        said = [] if self.found is None else [fault.text for fault in self.found.faults]
        waits = "" if self.plan is None else words.waits(self.plan)
        return [*said, waits] if waits else said

    @property
    def may_apply(self) -> bool:
        """Whether the plan can be deployed."""
        return self.is_changed and self.is_checked and not self.faults

    def name_of(self, device_id: str) -> str:
        """Return how people call a PC."""
        return self.names.get(device_id, device_id[:8])

    def checked_at(self, place: Place, stage: Stage) -> CheckedStage | None:
        """Return what the last check says of a stage; None if that was another stage."""
        if self.found is None or place.pipeline >= len(self.found.pipelines):
            return None
        stages = self.found.pipelines[place.pipeline].stages
        checked = stages[place.stage] if place.stage < len(stages) else None
        if checked is None or checked.stage.device_id != stage.device_id:
            return None
        return checked

    def _tell(self, _index: int) -> None:
        self.moved.emit()

    # The service

    def check(self) -> None:
        """Ask what the plan costs and what it breaks; of one without stages, who could have some."""
        self._timer.stop()
        self.questions.drop_check()
        self._waits = not self._in_sight
        if self.plan is None or self._waits:
            return
        self.questions.check = self._bridge.ask(
            calls.check_plan(self.plan.request()), alive(self, self._take), alive(self, self._fail)
        )

    def show(self, *, in_sight: bool) -> None:
        """Somebody looks at the plan, or nobody does: then nothing is asked, and what changed is checked later."""
        self._in_sight = in_sight
        if in_sight and self._waits:
            self.check()

    def ask_planner(self, devices: Sequence[str] = ()) -> None:
        """Ask the planner for a plan with the same promise and rules, and with these PCs alone if any are named."""
        if self.plan is None or self.questions.plan is not None:
            return
        asked = msgspec.structs.replace(self.plan.settings, devices=list(devices))
        request = PlanRequest(asked, pipelines=max(1, len(self.plan.lanes) + self.plan.waiting))
        self.questions.plan = self._bridge.ask(
            calls.plan(request), alive(self, self._take_plans), alive(self, self._fail_plans)
        )

    def forget(self) -> None:
        """Forget what was asked and heard."""
        self._timer.stop()
        self.questions.end()
        self.found, self.problem = None, ""

    def _take(self, found: CheckedPlan) -> None:
        self.questions.check = None
        self.found, self.problem = found, ""
        self.names.update((pc.device_id, pc.name) for pc in found.usable)
        self.looked.emit()

    def _fail(self, error: ClientError) -> None:
        self.questions.check = None
        self.found, self.problem = None, str(error)
        self.looked.emit()

    def _take_plans(self, plans: Plans) -> None:
        self.questions.plan = None
        if self.plan is None:
            return
        for pipeline in plans.pipelines:
            self.names.update((stage.device_id, stage.name) for stage in pipeline.plan.stages)
        if not plans.pipelines:
            self.said.emit(plans.missing, True)
            return
        reasons = [*dict.fromkeys(reason for one in plans.pipelines for reason in one.plan.reasons), *plans.reasons]
        self.do("Plan", model.with_plans(self.plan, plans))
        self.reasons = reasons
        self.looked.emit()
        self.said.emit(plans.missing or "The planner made a plan; it is not applied yet.", bool(plans.missing))

    def _fail_plans(self, error: ClientError) -> None:
        self.questions.plan = None
        self.said.emit(str(error), True)


class _Edit(QUndoCommand):
    """From one plan to the next."""

    def __init__(self, editor: PlanEditor, text: str, before: Edited, after: Edited, key: str) -> None:
        super().__init__(text)
        self._editor, self._before, self.after, self.key = editor, before, after, key

    def id(self) -> int:
        """Let Qt ask whether two belong together."""
        return 1 if self.key else -1

    def mergeWith(self, other: QUndoCommand) -> bool:  # noqa: N802 - Qt's name
        """Take one into this that was done for the same thing."""
        if not isinstance(other, _Edit) or other.key != self.key:
            return False
        self.after = other.after
        self.setObsolete(self.after == self._before)
        return True

    def undo(self) -> None:
        """Show the plan before."""
        self._editor.show_plan(self._before)

    def redo(self) -> None:
        """Show the plan after."""
        self._editor.show_plan(self.after)
