"""The page of the PCs: chips with counts, search, saved filters, the table, and one PC in detail."""

from __future__ import annotations

from functools import partial

from PySide6.QtCore import Qt, QTimer
from PySide6.QtGui import QHideEvent, QShowEvent
from PySide6.QtWidgets import (
    QButtonGroup,
    QComboBox,
    QHBoxLayout,
    QLineEdit,
    QPushButton,
    QSplitter,
    QToolButton,
    QVBoxLayout,
    QWidget,
)

from console.gui.asking import Question
from console.gui.devices.bulk import BulkBar
from console.gui.devices.detail import Detail
from console.gui.devices.filters import SavedFilters
from console.gui.devices.fleet import NAME_COLUMN, STATUS_TEXTS, STATUSES, Filter, Status, counts, parts_of
from console.gui.devices.model import DeviceModel
from console.gui.filing import write_beside
from console.gui.page import Desk, Page
from console.gui.rows import RowsView
from console.gui.states import States

TICK_MS = 5000
SEARCH_MS = 150
NO_FILTER = "Filters"


class DevicesPage(Page):
    """Rows keep their place while they change; a click on a heading sorts them."""

    name = "devices"
    heading = "Devices"
    icon = "devices"

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk, desk.agents, desk.status)
        self.model = DeviceModel(self)
        self.saved = SavedFilters(desk.settings_folder)
        self._badge = ""
        self.table = self._make_table()
        self.bulk = BulkBar(desk)
        self.bulk.said.connect(self.said)
        self.detail = Detail(desk)
        self.detail.wants.connect(self.wants)
        self.detail.said.connect(self.said)
        self.detail.hide()
        self._lay_out(desk)
        self._ticking = QTimer(self)
        self._ticking.setInterval(TICK_MS)
        self._ticking.timeout.connect(self.model.tick)
        desk.agents.came.connect(self._take_agents)
        desk.status.came.connect(self._take_status)
        if desk.agents.latest is not None:
            self._take_agents()

    def select(self, what: str) -> None:
        """Bring a PC into sight (by its id), or all of a status."""
        status = next((status for status in STATUSES if status == what), None)
        self._set_filter(Filter(status) if status else Filter())
        if status is None and what and not self.table.choose(what):
            self.said.emit("That PC is not in the list any more.", True)

    def search(self) -> None:
        """Go to the search."""
        self.words.setFocus()
        self.words.selectAll()

    def refresh(self) -> None:
        """Ask for everything anew."""
        super().refresh()
        self.detail.look()

    def showEvent(self, event: QShowEvent) -> None:  # noqa: N802 - Qt's name
        """Begin to count the ages."""
        super().showEvent(event)
        self._ticking.start()

    def hideEvent(self, event: QHideEvent) -> None:  # noqa: N802 - Qt's name
        """Let the ages be."""
        super().hideEvent(event)
        self._ticking.stop()

    def _make_table(self) -> RowsView:
        table = RowsView("PCs", self.model)
        table.sort_by(NAME_COLUMN)
        table.selectionModel().selectionChanged.connect(self._follow_chosen)
        return table

    def _lay_out(self, desk: Desk) -> None:
        split = QSplitter(Qt.Orientation.Horizontal)
        split.setChildrenCollapsible(False)
        split.addWidget(self.table)
        split.addWidget(self.detail)
        split.setStretchFactor(0, 3)
        split.setStretchFactor(1, 2)
        content = QWidget()
        rows = QVBoxLayout(content)
        rows.setContentsMargins(0, 0, 0, 0)
        rows.addWidget(split, 1)
        self.states = States(content)
        self.states.follow(desk.agents)
        self.rows.addLayout(self._make_chips())
        self.rows.addLayout(self._make_search())
        self.rows.addWidget(self.bulk)
        self.rows.addWidget(self.states, 1)

    def _make_chips(self) -> QHBoxLayout:
        across = QHBoxLayout()
        self.chips: dict[Status | None, QToolButton] = {}
        self._group = QButtonGroup(self)
        for status in (None, *STATUSES):
            chip = QToolButton()
            chip.setCheckable(True)
            chip.setText("All" if status is None else STATUS_TEXTS[status])
            chip.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
            chip.clicked.connect(self._follow_filter)
            chip.toggled.connect(partial(_embolden, chip))
            self._group.addButton(chip)
            across.addWidget(chip)
            self.chips[status] = chip
        self.chips[None].setChecked(True)
        across.addStretch(1)
        return across

    def _make_search(self) -> QHBoxLayout:
        self.words = QLineEdit()
        self.words.setPlaceholderText("Search names, codes, tags, devices, reasons, models")
        self.words.setAccessibleName("Search")
        self.words.setClearButtonEnabled(True)
        self._typing = QTimer(self)
        self._typing.setSingleShot(True)
        self._typing.setInterval(SEARCH_MS)
        self._typing.timeout.connect(self._follow_filter)
        self.words.textChanged.connect(lambda _: self._typing.start())
        self.filters = QComboBox()
        self.filters.setAccessibleName("Saved filters")
        self.filters.activated.connect(self._use_saved)
        self.save = QPushButton("Sa&ve filter…")
        self.save.clicked.connect(self._ask_name)
        self.forget = QPushButton("&Forget filter")
        self.forget.clicked.connect(self._forget)
        self._list_filters()
        across = QHBoxLayout()
        across.addWidget(self.words, 1)
        for widget in (self.filters, self.save, self.forget):
            across.addWidget(widget)
        return across

    def _take_agents(self) -> None:
        agents = self.desk.agents.latest or []
        self.model.take(agents)
        self._show()
        if not agents:
            self.states.show_empty("No PC is in the fleet yet.", "&Invite PCs", lambda: self.wants.emit("invites", ""))
        else:
            self.states.show_content()

    def _take_status(self) -> None:
        self.model.take_parts(parts_of(self.desk.status.latest.pipelines))
        self._show()

    def _show(self) -> None:
        numbers = counts(self.model.items, self.model.parts)
        for status, chip in self.chips.items():
            number = numbers[status] if status else sum(numbers.values()) - numbers["gone"]
            text = f"{'All' if status is None else STATUS_TEXTS[status]} {number}"
            if chip.text() != text:
                chip.setText(text)
        badge = str(numbers["pending"] or "")
        if badge != self._badge:
            self._badge = badge
            self.badge.emit(badge)
        self._follow_chosen()

    def _follow_chosen(self) -> None:
        agents = [agent for device in self.table.chosen() if (agent := self.model.find(device)) is not None]
        self.bulk.choose(agents)
        one = agents[0] if len(agents) == 1 else None
        self.detail.show_device(one, self.model.parts_of(one.device_id) if one else ())

    def _follow_filter(self) -> None:
        status = next(status for status, chip in self.chips.items() if chip.isChecked())
        self.model.show_only(Filter(status, self.words.text().strip()))

    def _set_filter(self, wanted: Filter) -> None:
        self.chips[wanted.status].setChecked(True)
        self.words.setText(wanted.words)
        self._follow_filter()

    def _list_filters(self) -> None:
        self.filters.clear()
        self.filters.addItem(NO_FILTER)
        for saved in self.saved.all:
            self.filters.addItem(saved.name)
        self.filters.setVisible(bool(self.saved.all))
        self.forget.setVisible(bool(self.saved.all))

    def _use_saved(self, place: int) -> None:
        self._set_filter(self.saved.all[place - 1].filter() if place else Filter())

    def _ask_name(self) -> None:
        question = Question(self, "Save filter", "It is kept on this PC.", "Save", field="Name of the filter")
        question.answered.connect(lambda name, _: self.save_filter(name) if name else None)
        question.open()

    def save_filter(self, name: str) -> None:
        """Keep what is shown now under a name."""
        self.saved.save(name, self.model.filter)
        self._list_filters()
        self.filters.setCurrentText(name)
        self._keep_filters()

    def _forget(self) -> None:
        if self.filters.currentIndex() > 0:
            self.saved.remove(self.filters.currentText())
            self._list_filters()
            self._keep_filters()

    def _keep_filters(self) -> None:
        write_beside(self, self.saved.write, self._tell_unkept)

    def _tell_unkept(self, why: str) -> None:
        if why:
            self.said.emit(f"The filters are not kept on this PC: {why}", True)


def _embolden(chip: QToolButton, chosen: bool) -> None:
    """Show which one is chosen by more than a shade, which is hardly seen in the dark."""
    font = chip.font()
    font.setBold(chosen)
    font.setUnderline(chosen)
    chip.setFont(font)
