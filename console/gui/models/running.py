"""One build as it runs: its phases, figures and log, and what can be done with it. Looking away changes nothing."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import Signal
from PySide6.QtGui import QHideEvent, QShowEvent, QTextCursor
from PySide6.QtWidgets import QPlainTextEdit, QVBoxLayout, QWidget

from agent.look.widgets import announce, heading, label
from console import calls
from console.api.admin.build_types import Build, BuildDetail
from console.call import Call
from console.errors import ClientError, ServiceRefused
from console.gui.alive import alive
from console.gui.asking import Question
from console.gui.feed import Feed
from console.gui.models import texts
from console.gui.models.parts import Bars, Facts, across, button, say
from console.gui.page import Desk
from shard_export.library.counts import counted

EVERY_S = 1.0
STALLED = (
    "Nothing was heard of it for long. The console's PC may be out of memory or disk; pause it and resume, which goes "
    "on after the last finished layer."
)


class BuildView(QWidget):
    """Follows one build while it is in sight."""

    said = Signal(str, bool)
    deploy = Signal(str)
    """Somebody wants to deploy the model."""

    def __init__(self, desk: Desk, build_id: str) -> None:
        super().__init__()
        self._desk = desk
        self.build: Build | None = None
        self._feed = Feed(desk.bridge, calls.build(build_id), EVERY_S, self)
        self._feed.came.connect(self._show)
        self._feed.failed.connect(self._fail)
        self.headline = heading("Asking the service…")
        self.message = label()
        self.message.setObjectName("message")
        self.bars = Bars()
        self.facts = Facts()
        self.quality = label()
        self.quality.setObjectName("quality")
        self.log = QPlainTextEdit()
        self.log.setReadOnly(True)
        self.log.setAccessibleName("Log of the build")
        self.log.setTabChangesFocus(True)
        self.log.setLineWrapMode(QPlainTextEdit.LineWrapMode.NoWrap)
        self.hint = label("Closing this window does not stop the build.", quiet=True)
        self._make_buttons()
        rows = QVBoxLayout(self)
        rows.setContentsMargins(0, 0, 0, 0)
        for widget in (self.headline, self.message, self.bars, self.facts, self.quality):
            rows.addWidget(widget)
        rows.addWidget(self.log, 1)
        rows.addWidget(self.hint)
        rows.addLayout(across(self.pause, self.resume, self.cancel, self.publish, self.deploy_now))
        self._follow_buttons()

    def showEvent(self, event: QShowEvent) -> None:  # noqa: N802 - Qt's name
        """Begin to watch."""
        super().showEvent(event)
        if not event.spontaneous():
            self._feed.watch()

    def hideEvent(self, event: QHideEvent) -> None:  # noqa: N802 - Qt's name
        """Look away; the build goes on."""
        super().hideEvent(event)
        if not event.spontaneous():
            self._feed.leave()

    def _make_buttons(self) -> None:
        self.pause = button("&Pause", lambda: self._order(calls.pause_build))
        self.resume = button("&Resume", lambda: self._order(calls.resume_build))
        self.cancel = button("&End the build…", self._ask_cancel)
        self.publish = button("P&ublish", lambda: self._order(calls.publish_build))
        self.deploy_now = button("&Deploy…", lambda: self.deploy.emit(self.build.model_id if self.build else ""))

    def _show(self, detail: BuildDetail) -> None:
        before, build = self.build, detail.build
        self.build = build
        self.headline.setText(f"{build.model_id}: {texts.build_state_text(build)}")
        say(self.message, STALLED if build.stalled else build.message, bad=build.stalled or build.state == "failed")
        self.bars.show_bars(texts.phase_rows(build))
        self.facts.show_facts(texts.build_facts(build))
        lines = texts.quality_lines(build.gate, build.evaluation, build.evaluation_problem)
        say(self.quality, "\n".join([*lines, *build.notes]))
        self._show_log(detail.log)
        self._follow_buttons()
        if before is not None and before.state != build.state:
            announce(self.headline, f"{self.headline.text()}. {build.message}")

    def _show_log(self, lines: list[str]) -> None:
        text = "\n".join(lines)
        if text == self.log.toPlainText():
            return
        bar = self.log.verticalScrollBar()
        # Whoever scrolled up reads; only at the end is it followed.
        follows, place = bar.value() >= bar.maximum() - 1, bar.value()
        self.log.setPlainText(text)
        if follows:
            self.log.moveCursor(QTextCursor.MoveOperation.End)
            self.log.moveCursor(QTextCursor.MoveOperation.StartOfBlock)
        else:
            bar.setValue(place)

    def _fail(self, error: ClientError) -> None:
        goes_on = self.build is not None and self.build.goes_on and not isinstance(error, ServiceRefused)
        say(self.message, f"{error} The build itself goes on." if goes_on else str(error), bad=True)

    def _follow_buttons(self) -> None:
        build, may = self.build, self._desk.may("operate")
        state = build.state if build is not None else ""
        self.hint.setVisible(build is not None and build.goes_on)
        self.pause.setVisible(may and state in {"queued", "running", "stopping"})
        self.pause.setText("&Stop at once" if state == "stopping" else "&Pause")
        self.resume.setVisible(may and build is not None and build.resumable)
        self.cancel.setVisible(may and state not in {"", "built", "cancelled"})
        self.publish.setVisible(may and build is not None and state == "built" and not build.published)
        self.deploy_now.setVisible(may and build is not None and build.published)

    def _order(self, make: Callable[[str], Call[Build]]) -> None:
        if self.build is not None:
            self._desk.bridge.ask(make(self.build.build_id), alive(self, self._done), alive(self, self._refused))

    def _done(self, build: Build) -> None:
        self.said.emit(f"{build.model_id}: {texts.build_state_text(build)}. {build.message}".strip(), False)
        self._feed.now()
        if build.published:
            self._desk.libraries.now()

    def _refused(self, error: ClientError) -> None:
        say(self.message, str(error), bad=True)
        self.said.emit(str(error), True)

    def _ask_cancel(self) -> None:
        build = self.build
        if build is None:
            return
        tick = f"Remove the {counted(build.layer, 'finished layer')}, too" if build.layer else ""
        question = Question(
            self, f"End the build of {build.model_id}", texts.kept_text(build), "End the build", tick=tick
        )
        question.answered.connect(lambda _, discard: self._cancel(discard=discard))
        question.open()

    def _cancel(self, *, discard: bool) -> None:
        if self.build is not None:
            call = calls.cancel_build(self.build.build_id, discard=discard)
            self._desk.bridge.ask(call, alive(self, self._done), alive(self, self._refused))
