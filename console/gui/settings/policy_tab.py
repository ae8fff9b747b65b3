"""The policy of all PCs or of those with a tag: what holds, who set it, and a field to change it."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QComboBox, QHBoxLayout, QLabel, QLineEdit, QPushButton, QVBoxLayout, QWidget

from agent.look.widgets import label
from agent.volunteer.errors import WishRefused
from agent.volunteer.wishes import PlainValue, from_text, to_plain
from console import calls
from console.api.admin import types as wire
from console.errors import ClientError
from console.gui.alive import alive
from console.gui.feed import Feed
from console.gui.page import Desk
from console.gui.rows import Heading, KeyedModel, RowsView
from console.gui.settings.policy import ROW_TEXTS, PolicyLine, lines_of, tags_of, typed_text, value_text
from console.gui.states import States

ALL_PCS = "All PCs"
MOST_REFUSALS = 3


class PolicyModel(KeyedModel[PolicyLine]):
    """All rows, in the order people are shown them."""

    headings = (
        Heading("What", 52), Heading("Holds", 22), Heading("Set by", 20), Heading("For all PCs", 20),
        Heading("For the tag", 20), Heading("Built in", 22), Heading("Row", 26),
    )  # fmt: skip

    def key_of(self, item: PolicyLine) -> str:
        return item.name

    def text(self, item: PolicyLine, column: int) -> str:
        texts = (
            ROW_TEXTS[item.name], value_text(item.name, item.effective), item.set_by,
            value_text(item.name, item.for_all), value_text(item.name, item.for_tag),
            value_text(item.name, item.built_in), item.name,
        )  # fmt: skip
        return texts[column]


class PolicyTab(QWidget):
    """Follows the policy and the tags of the PCs. GUI thread."""

    said = Signal(str, bool)

    def __init__(self, desk: Desk, policy: Feed) -> None:
        super().__init__()
        self._desk, self._policy = desk, policy
        self.model = PolicyModel(self)
        self.table = RowsView("Policy", self.model, several=False)
        self.table.selectionModel().selectionChanged.connect(self._choose)
        self.states = States(self.table)
        self.states.follow(policy)
        self.tag = QComboBox()
        self.tag.setEditable(True)
        self.tag.setInsertPolicy(QComboBox.InsertPolicy.NoInsert)
        self.tag.setAccessibleName("For which PCs")
        self.tag.addItem(ALL_PCS)
        self.tag.currentTextChanged.connect(lambda _: self._show())
        self.row_name = label(bold=True)
        self.value = QLineEdit()
        self.value.setAccessibleName("New value")
        self.value.returnPressed.connect(self._set)
        self.set = QPushButton("&Set")
        self.set.clicked.connect(self._set)
        self.take_back = QPushButton("&Take back")
        self.take_back.clicked.connect(lambda: self._change(None))
        self.refusals = label()
        self._lay_out()
        policy.came.connect(self._show)
        self._choose()

    @property
    def chosen_tag(self) -> str:
        """The tag that is looked at; empty: all PCs."""
        text = self.tag.currentText().strip()
        return "" if text == ALL_PCS else text

    def _lay_out(self) -> None:
        about = QHBoxLayout()
        whom = QLabel("&For")
        whom.setBuddy(self.tag)
        about.addWidget(whom)
        about.addWidget(self.tag)
        self.tag.setMinimumWidth(self.fontMetrics().averageCharWidth() * 30)
        about.addWidget(label("The tightest wins: built in, yours, and what the owner of a PC says.", quiet=True), 1)
        change = QHBoxLayout()
        change.addWidget(self.row_name, 1)
        change.addWidget(self.value, 1)
        change.addWidget(self.set)
        change.addWidget(self.take_back)
        rows = QVBoxLayout(self)
        rows.addLayout(about)
        rows.addWidget(self.states, 1)
        rows.addLayout(change)
        rows.addWidget(self.refusals)

    def _show(self) -> None:
        view: wire.PolicyView | None = self._policy.latest
        if view is None:
            return
        before = self._line()
        self.model.take(lines_of(view, self.chosen_tag))
        self.states.show_content()
        if self._line() != before:
            self._choose()
        known = {self.tag.itemText(place) for place in range(self.tag.count())}
        for tag in tags_of(view, self._desk.agents.latest or []):
            if tag not in known:
                self.tag.addItem(tag)
        shown = [f"{one.name or one.device_id}: {one.message}" for one in view.refusals[:MOST_REFUSALS]]
        more = len(view.refusals) - len(shown)
        self.refusals.setText(
            "These PCs do not take the policy. " + " ".join(shown) + (f" And {more} more." if more > 0 else "")
        )
        self.refusals.setVisible(bool(shown))

    def _line(self) -> PolicyLine | None:
        chosen = self.table.chosen()
        return self.model.find(chosen[0]) if chosen else None

    def _choose(self) -> None:
        line, may = self._line(), self._desk.may("admin")
        self.row_name.setText(ROW_TEXTS[line.name] if line else "Select a row to change it.")
        said = (line.for_tag if self.chosen_tag else line.for_all) if line else None
        if line is not None:
            self.value.setText(typed_text(line.name, said if said is not None else line.effective))
        for widget in (self.value, self.set):
            widget.setEnabled(line is not None and may)
        self.take_back.setEnabled(said is not None and may)

    def _set(self) -> None:
        line = self._line()
        if line is None:
            return
        try:
            value = to_plain(line.name, from_text(line.name, self.value.text()))
        except WishRefused as error:
            self.said.emit(str(error), True)
        else:
            self._change(value)

    def _change(self, value: PlainValue) -> None:
        line = self._line()
        if line is not None:
            call = calls.change_policy({line.name: value}, tag=self.chosen_tag)
            self._desk.bridge.ask(call, alive(self, lambda _: self._changed(line.name)), alive(self, self._refused))

    def _changed(self, name: str) -> None:
        whom = f"PCs with the tag {self.chosen_tag}" if self.chosen_tag else "all PCs"
        self.said.emit(f"{ROW_TEXTS[name]}: changed for {whom}.", False)
        self._policy.now()

    def _refused(self, error: ClientError) -> None:
        self.said.emit(str(error), True)
