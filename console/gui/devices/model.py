"""The table's model: rows stay where they are while their cells change, so that selection and scroll do, too."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from PySide6.QtCore import (
    QAbstractTableModel,
    QModelIndex,
    QObject,
    QPersistentModelIndex,
    QSortFilterProxyModel,
    Qt,
)

from console.api.admin import types as wire
from console.gui.devices.fleet import COLUMNS, NAME_COLUMN, SEEN_COLUMN, Filter, Part, Parts, status_of

Index = QModelIndex | QPersistentModelIndex
ID_ROLE = Qt.ItemDataRole.UserRole
SORT_ROLE = Qt.ItemDataRole.UserRole + 1
NOWHERE = QModelIndex()
MOST_RUNS = 32


class DeviceModel(QAbstractTableModel):
    """PCs in the order in which they came; cells are worded when they are drawn. GUI thread."""

    def __init__(self, parent: QObject | None = None, now_s: Callable[[], float] = time.time) -> None:
        super().__init__(parent)
        self._now_s = now_s
        self.agents: list[wire.Agent] = []
        self.parts: Parts = {}
        self._rows: dict[str, int] = {}

    def take_agents(self, agents: Sequence[wire.Agent]) -> None:
        """Show the PCs as they are now: only what differs is touched."""
        new = {agent.device_id: agent for agent in agents}
        self._remove([row for row, agent in enumerate(self.agents) if agent.device_id not in new])
        changed = []
        for row, agent in enumerate(self.agents):
            now = new.pop(agent.device_id)
            if now != agent:
                self.agents[row] = now
                changed.append(row)
        self._tell(changed)
        if new:
            first = len(self.agents)
            self.beginInsertRows(NOWHERE, first, first + len(new) - 1)
            self.agents.extend(new.values())
            self._index()
            self.endInsertRows()

    def take_parts(self, parts: Parts) -> None:
        """Show who serves what now."""
        differing = {
            device for device in self.parts.keys() | parts.keys() if self.parts.get(device) != parts.get(device)
        }
        self.parts = parts
        self._tell(sorted(self._rows[device] for device in differing if device in self._rows))

    def tick(self) -> None:
        """Word the ages anew."""
        if self.agents:
            last = len(self.agents) - 1
            self.dataChanged.emit(
                self.index(0, SEEN_COLUMN), self.index(last, SEEN_COLUMN), [Qt.ItemDataRole.DisplayRole]
            )

    def agent(self, device_id: str) -> wire.Agent | None:
        """Return a PC."""
        row = self._rows.get(device_id)
        return None if row is None else self.agents[row]

    def parts_of(self, device_id: str) -> Sequence[Part]:
        """Return what a PC runs."""
        return self.parts.get(device_id, ())

    def rowCount(self, parent: Index = NOWHERE) -> int:  # noqa: N802 - Qt's name
        return 0 if parent.isValid() else len(self.agents)

    def columnCount(self, parent: Index = NOWHERE) -> int:  # noqa: N802 - Qt's name
        return 0 if parent.isValid() else len(COLUMNS)

    def headerData(  # noqa: N802 - Qt's name
        self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole
    ) -> Any:
        if orientation == Qt.Orientation.Horizontal and role == Qt.ItemDataRole.DisplayRole:
            return COLUMNS[section].heading
        return None

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        agent = self.agents[index.row()]
        column = COLUMNS[index.column()]
        if role == Qt.ItemDataRole.DisplayRole:
            return column.text(agent, self.parts_of(agent.device_id), self._now_s())
        if role == Qt.ItemDataRole.AccessibleTextRole:
            text = column.text(agent, self.parts_of(agent.device_id), self._now_s())
            return f"{column.heading}: {text}" if text else f"{column.heading}: empty"
        if role == Qt.ItemDataRole.TextAlignmentRole and column.number:
            return Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
        if role == Qt.ItemDataRole.ToolTipRole:
            return column.text(agent, self.parts_of(agent.device_id), self._now_s()) or None
        if role == ID_ROLE:
            return agent.device_id
        if role == SORT_ROLE:
            return column.key(agent, self.parts_of(agent.device_id))
        return None

    def _remove(self, rows: Sequence[int]) -> None:
        for row in reversed(rows):
            self.beginRemoveRows(NOWHERE, row, row)
            del self.agents[row]
            self._index()
            self.endRemoveRows()

    def _index(self) -> None:
        self._rows = {agent.device_id: row for row, agent in enumerate(self.agents)}

    def _tell(self, rows: Sequence[int]) -> None:
        """Say which rows changed, neighbours together; many that lie apart are said to be all between."""
        runs: list[tuple[int, int]] = []
        for row in rows:
            if runs and row == runs[-1][1] + 1:
                runs[-1] = (runs[-1][0], row)
            else:
                runs.append((row, row))
        if len(runs) > MOST_RUNS:
            runs = [(runs[0][0], runs[-1][1])]
        for first, last in runs:
            self.dataChanged.emit(self.index(first, 0), self.index(last, len(COLUMNS) - 1))


class ShownDevices(QSortFilterProxyModel):
    """The PCs a filter lets through, sorted when somebody asks for it: rows do not jump while they are read."""

    def __init__(self, source: DeviceModel, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._devices = source
        self.filter = Filter()
        self._shown: frozenset[str] = frozenset()
        self.setDynamicSortFilter(False)
        self.setSourceModel(source)
        self.setSortRole(SORT_ROLE)
        self.sort(NAME_COLUMN)

    def show_only(self, shown: Filter) -> None:
        """Let others through."""
        self.filter = shown
        self.look_again()

    def look_again(self) -> None:
        """Let in and out what changed since."""
        devices = self._devices
        shown = frozenset(
            agent.device_id for agent in devices.agents if self.filter.lets(agent, devices.parts_of(agent.device_id))
        )
        if shown != self._shown:
            self.beginFilterChange()
            self._shown = shown
            self.endFilterChange(QSortFilterProxyModel.Direction.Rows)

    def filterAcceptsRow(self, row: int, parent: Index) -> bool:  # noqa: N802 - Qt's name
        return self._devices.agents[row].device_id in self._shown

    def lessThan(self, left: Index, right: Index) -> bool:  # noqa: N802 - Qt's name
        column = COLUMNS[left.column()]
        one, other = self._devices.agents[left.row()], self._devices.agents[right.row()]
        key = column.key(one, self._devices.parts_of(one.device_id))
        return bool(key < column.key(other, self._devices.parts_of(other.device_id)))  # type: ignore[operator]  # of one column

    def status_at(self, row: int) -> str:
        """Return the status of the PC in a row that is shown."""
        agent = self._devices.agents[self.mapToSource(self.index(row, 0)).row()]
        return status_of(agent, self._devices.parts_of(agent.device_id))
