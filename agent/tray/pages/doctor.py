"""The doctor: what is wrong and what to do, and what each probe sees right now."""

from __future__ import annotations

from PySide6.QtCore import QProcess, QTimer
from PySide6.QtGui import QHideEvent, QShowEvent
from PySide6.QtWidgets import QHBoxLayout, QProgressBar, QPushButton

from agent.control.protocol import Answer, AskProbes, Findings, FindingShown, Probes, Refused, RunDoctor
from agent.control.status import Status
from agent.look.widgets import Table, announce, heading, label
from agent.tray.bridge import Bridge
from agent.tray.launch import Launch, findings_of
from agent.tray.pages.page import Page
from agent.tray.texts import Texts
from agent.tray.view import Shown

PROBES_MS = 1000


class DoctorPage(Page):
    """Asks the service; where it does not run, which is when a doctor is needed most, a program of its own."""

    name = "doctor"

    def __init__(self, texts: Texts, bridge: Bridge, launch: Launch) -> None:
        super().__init__(texts, scrolls=False)
        self._bridge, self._launch = bridge, launch
        self._service = False
        self._examining = False
        self._child: QProcess | None = None
        self._asking = QTimer(self)
        self._asking.setInterval(PROBES_MS)
        self._asking.timeout.connect(self._ask_probes)
        self.rows.addWidget(label(texts("doctor.intro"), quiet=True))
        self.examine = QPushButton(texts("doctor.examine"))
        self.examine.clicked.connect(self._examine)
        self.busy = QProgressBar()
        self.busy.setRange(0, 0)
        self.busy.setAccessibleName(texts("doctor.examining"))
        self.busy.hide()
        line = QHBoxLayout()
        line.addWidget(self.examine)
        line.addWidget(self.busy, 1)
        line.addStretch(1)
        self.rows.addLayout(line)
        self.result = label()
        self.result.setObjectName("result")
        self.rows.addWidget(self.result)
        headers = [texts(f"doctor.{name}") for name in ("verdict", "check", "said")]
        self.findings = Table(texts("doctor.findings"), headers)
        self.findings.hide()
        self.rows.addWidget(self.findings, 3)
        self.rows.addWidget(heading(texts("doctor.probes")))
        headers = [texts(f"doctor.{name}") for name in ("probe", "value", "source", "age")]
        self.probes = Table(texts("doctor.probes"), headers, stretch=1)
        self.rows.addWidget(self.probes, 2)

    def follow(self, status: Status | None, shown: Shown) -> None:
        """Remember whether there is a service to ask."""
        self._service = status is not None
        if not self._service:
            self.probes.show_rows([])

    def entered(self) -> None:
        """Ask the probes at once; later ones are asked while the page is in sight."""
        self._ask_probes()

    def showEvent(self, event: QShowEvent) -> None:  # noqa: N802 - Qt's name
        super().showEvent(event)
        self._asking.start()

    def hideEvent(self, event: QHideEvent) -> None:  # noqa: N802 - Qt's name
        super().hideEvent(event)
        self._asking.stop()

    def close_child(self) -> None:
        """End an examination that runs as a program of its own."""
        if self._child is not None:
            self._child.kill()
            self._child.waitForFinished(2000)

    def _examine(self) -> None:
        if self._examining:
            return
        self._examining = True
        self.examine.setEnabled(False)
        self.busy.show()
        self.result.setText(self.texts("doctor.examining"))
        if self._service:
            self._bridge.order(RunDoctor, self._take)
            return
        child = self._child = self._launch.doctor(self)
        child.finished.connect(self._child_ended)
        child.errorOccurred.connect(self._child_failed)
        child.start()
        if child.state() == QProcess.ProcessState.NotRunning:
            self._child_failed(QProcess.ProcessError.FailedToStart)

    def _take(self, answer: Answer) -> None:
        if isinstance(answer, Findings):
            self._show(answer.findings)
        elif isinstance(answer, Refused):
            self._end(answer.message)

    def _child_ended(self) -> None:
        if self._child is None:
            return
        found = findings_of(bytes(self._child.readAllStandardOutput().data()))
        self._child.deleteLater()
        self._child = None
        if found is None:
            self._end(self.texts("doctor.failed"))
        else:
            self._show(found)

    def _child_failed(self, error: QProcess.ProcessError) -> None:
        if error == QProcess.ProcessError.FailedToStart and self._child is not None:
            self._child.deleteLater()
            self._child = None
            self._end(self.texts("doctor.failed"))

    def _show(self, findings: list[FindingShown]) -> None:
        rows = [
            (
                self.texts(f"verdict.{finding.verdict}"),
                self.texts.named("check", finding.check),
                f"{finding.said}\n→ {finding.advice}" if finding.advice else finding.said,
            )
            for finding in sorted(findings, key=lambda finding: finding.verdict != "problem")
        ]
        self.findings.show_rows(rows)
        self.findings.show()
        problems = sum(finding.verdict == "problem" for finding in findings)
        self._end(self.texts("doctor.problems", n=problems) if problems else self.texts("doctor.healthy"))

    def _end(self, said: str) -> None:
        self._examining = False
        self.examine.setEnabled(True)
        self.busy.hide()
        self.result.setText(said)
        announce(self.result, said)

    def _ask_probes(self) -> None:
        if self._service:
            self._bridge.order(AskProbes, self._take_probes)

    def _take_probes(self, answer: Answer) -> None:
        if isinstance(answer, Probes):
            rows = [
                (
                    self.texts.named("probe", probe.name),
                    probe.value or self.texts("value.unknown"),
                    probe.source or "-",
                    self.texts("doctor.ago", duration=self.texts.duration(probe.age_s)),
                )
                for probe in answer.probes
            ]
            self.probes.show_rows(rows)
