"""One PC in detail: facts, what it serves, what was measured, how it was lately, what happened to it."""

from __future__ import annotations

import time
from collections.abc import Sequence

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QFormLayout, QHBoxLayout, QLabel, QPushButton, QVBoxLayout, QWidget

from agent.look.loop import Job
from agent.look.widgets import Table, heading, label, scrolled
from console import calls
from console.api.admin import types as wire
from console.api.admin.measured import MeasuredView
from console.errors import ClientError
from console.gui.alive import alive
from console.gui.asking import Question
from console.gui.audit.entries import detail_text
from console.gui.devices.fleet import STATUS_TEXTS, Part, reason_of, status_of
from console.gui.devices.former import former_of
from console.gui.devices.lately import Lately
from console.gui.page import Desk
from console.gui.times import age_text, ago_text, moment_text, size_text
from console.registry.records import AuditEntry
from console.visible import visible
from shard_export.library.counts import counted

FACTS = (
    "Status", "Reason", "Code", "Id", "System", "Version", "Update", "Devices", "Memory", "Key kept in", "Tags",
    "Rests", "Last seen", "Console",
)  # fmt: skip
KEYS = {"credential": "a credential of the service", "keyring": "the system's keyring", "file": "a file"}
MOST_ENTRIES = 50


class Detail(QWidget):
    """Follows the PC it was last given. GUI thread."""

    wants = Signal(str, str)
    said = Signal(str, bool)

    def __init__(self, desk: Desk) -> None:
        super().__init__()
        self._desk = desk
        self._device = ""
        self._agent: wire.Agent | None = None
        self._former: wire.Agent | None = None
        self._jobs: list[Job] = []
        self.name = label(bold=True, scale=1.3)
        self.facts: dict[str, QLabel] = {}
        form = QFormLayout()
        for fact in FACTS:
            self.facts[fact] = label()
            form.addRow(label(fact, quiet=True), self.facts[fact])
        self.same = label()
        self.merge = QPushButton("Take &over from the former record…")
        self.merge.clicked.connect(self._ask_merge)
        self.stages = Table("Stages of this PC", ["Model", "Layers", "ms/layer", "RTT ms"], stretch=0)
        self.open_model = QPushButton("&Go to the model")
        self.open_model.clicked.connect(self._go_to_model)
        self.units = Table(
            "Measured speeds", ["Model", "Device", "Engine", "ms/layer", "with 8", "Measured"], stretch=0
        )
        self.link = label(quiet=True)
        self.lately = Lately(desk)
        self.history = Table("History of this PC", ["When", "Who", "What", "Detail"])
        self.history_said = label(quiet=True)
        self._lay_out(form)

    def show_device(self, agent: wire.Agent | None, parts: Sequence[Part]) -> None:
        """Show a PC as it is now; None: nothing. Measurements and history are asked for when it is another one."""
        self.setVisible(agent is not None)
        if agent is None:
            self._device = ""
            self._cancel()
            self.lately.follow("")
            return
        self._show_facts(agent, parts)
        if agent.device_id != self._device:
            self._device = agent.device_id
            self.look()
            self.lately.follow(agent.device_id)

    def look(self) -> None:
        """Ask anew for what is not in the list of PCs."""
        if not self._device:
            return
        self._cancel()
        self.units.show_rows([])
        self.link.setText("Asking what was measured…")
        bridge = self._desk.bridge
        self._jobs = [
            bridge.ask(calls.measured(self._device), alive(self, self._show_measured), alive(self, self._no_measured))
        ]
        if self._desk.may("audit"):
            self.history.show_rows([])
            self.history_said.setText("Asking for the history…")
            asked = calls.audit(limit=MOST_ENTRIES, search=self._device)
            self._jobs.append(bridge.ask(asked, alive(self, self._show_history), alive(self, self._no_history)))
        else:
            self.history_said.setText("Who is signed in may not read the audit log.")

    def _lay_out(self, form: QFormLayout) -> None:
        content = QWidget()
        rows = QVBoxLayout(content)
        line = self.fontMetrics().height()
        rows.setContentsMargins(line // 2, 0, line // 2, 0)
        rows.addWidget(self.name)
        rows.addLayout(form)
        rows.addWidget(self.same)
        rows.addWidget(self.merge)
        across = QHBoxLayout()
        across.addWidget(heading("Serves"), 1)
        across.addWidget(self.open_model)
        rows.addLayout(across)
        rows.addWidget(self.stages)
        rows.addWidget(heading("Measured"))
        rows.addWidget(self.link)
        rows.addWidget(self.units)
        rows.addWidget(self.lately)
        rows.addWidget(heading("History"))
        rows.addWidget(self.history_said)
        rows.addWidget(self.history)
        for table, lines in ((self.stages, 3), (self.units, 5), (self.history, 9)):
            table.setFixedHeight(round(line * 1.7 * lines))
        rows.addStretch(1)
        whole = QVBoxLayout(self)
        whole.setContentsMargins(0, 0, 0, 0)
        whole.addWidget(scrolled(content))

    def _show_facts(self, agent: wire.Agent, parts: Sequence[Part]) -> None:
        now_s = time.time()
        free = f"{size_text(agent.memory_free_bytes)} free of " if agent.link == "connected" else ""
        texts = {
            "Status": STATUS_TEXTS[status_of(agent, parts)],
            "Reason": reason_of(agent),
            "Code": agent.device_code,
            "Id": agent.device_id,
            "System": agent.os,
            "Version": agent.version,
            "Update": agent.update,
            "Devices": ", ".join(agent.devices),
            "Memory": free + size_text(agent.memory_bytes),
            "Key kept in": KEYS.get(agent.key_protection, agent.key_protection),
            "Tags": ", ".join(agent.tags),
            "Rests": "" if agent.rests_percent is None else f"with {agent.rests_percent} % in the next hours",
            "Last seen": "now"
            if agent.link == "connected"
            else f"{moment_text(agent.seen_s)}, {ago_text(agent.seen_s, now_s)}",
            "Console": agent.console or "this one",
        }
        self.name.setText(visible(agent.name))
        for fact, text in texts.items():
            self.facts[fact].setText(visible(text) or "-")
        self._show_same(agent)
        self.stages.show_rows([_stage_row(part) for part in parts], right=(2, 3))
        self.open_model.setEnabled(bool(parts))
        self._model = parts[0].model if parts else ""

    def _show_same(self, agent: wire.Agent) -> None:
        known = {one.device_id: one for one in self._desk.agents.latest or []}
        self._agent, self._former = agent, former_of(agent, known)
        names = [
            f"{one.name} ({one.device_code})" if (one := known.get(other)) else other for other in agent.same_machine
        ]
        some = f"{counted(len(names), 'other record')} may be of the same machine: {', '.join(names)}."
        self.same.setText(visible(some) if names else "")
        self.same.setVisible(bool(names))
        self.merge.setVisible(self._former is not None and self._desk.may("operate"))

    def _show_measured(self, measured: MeasuredView) -> None:
        link = measured.link
        texts = []
        if link.round_trip_ms is not None:
            texts.append(f"round trip {link.round_trip_ms:.1f} ms")
        if link.down_bytes_per_s is not None:
            texts.append(f"{link.down_bytes_per_s / 1e6:.1f} MB/s from the console")
        self.link.setText("Link: " + (", ".join(texts) or "not measured yet"))
        self.units.show_rows(
            [
                [unit.model, unit.device, unit.engine, f"{unit.layer_ms:.2f}", f"{unit.layer_ms_8:.2f}",
                 f"{age_text(unit.age_s)} ago" + ("" if unit.counts else ", outdated")]
                for unit in measured.units
            ],
            right=(3, 4),
        )  # fmt: skip

    def _no_measured(self, error: ClientError) -> None:
        self.link.setText(str(error))

    def _show_history(self, entries: Sequence[AuditEntry]) -> None:
        self.history_said.setText("" if entries else "Nothing is in the audit log about this PC.")
        self.history_said.setVisible(not entries)
        self.history.show_rows(
            [[moment_text(entry.at_s), entry.actor, entry.action, detail_text(entry)] for entry in entries]
        )

    def _no_history(self, error: ClientError) -> None:
        self.history_said.show()
        self.history_said.setText(str(error))

    def _ask_merge(self) -> None:
        agent, former = self._agent, self._former
        if agent is None or former is None:
            return
        question = Question(
            self, "Take over from the former record?",
            "The PC keeps its new key and gets the tags of the former record, which ends.",
            "Take over", lines=[f"goes on   {_record_text(agent)}", f"ends      {_record_text(former)}"],
        )  # fmt: skip
        order = calls.merge(agent.device_id, former.device_id)
        merged, not_merged = alive(self, self._merged), alive(self, self._not_merged)
        question.answered.connect(lambda *_: self._desk.bridge.ask(order, merged, not_merged))
        question.open()

    def _merged(self, _: object) -> None:
        self.said.emit("The PC took over from its former record.", False)
        self._desk.agents.now()

    def _not_merged(self, error: ClientError) -> None:
        self.said.emit(str(error), True)

    def _go_to_model(self) -> None:
        self.wants.emit("models", self._model)

    def _cancel(self) -> None:
        for job in self._jobs:
            job.cancel()
        self._jobs = []


def _record_text(agent: wire.Agent) -> str:
    seen = "now" if agent.link == "connected" else ago_text(agent.seen_s, time.time())
    return f"{agent.device_code}   last seen {seen}   {agent.name}"


def _stage_row(part: Part) -> Sequence[str]:
    return [
        part.model,
        f"{part.first}-{part.last - 1}",
        "-" if part.ms_per_layer is None else f"{part.ms_per_layer:.2f}",
        "-" if part.round_trip_ms is None else f"{part.round_trip_ms:.1f}",
    ]
