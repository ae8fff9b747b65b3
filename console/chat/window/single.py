"""One chat window for each folder: a later start brings the first one's window up, and ends. GUI thread."""

from __future__ import annotations

import hashlib
from pathlib import Path

from PySide6.QtCore import QObject, Signal
from PySide6.QtNetwork import QLocalServer, QLocalSocket

from agent.folder_lock import FolderBusy, FolderLock

WAIT_MS = 2000


class SingleWindow(QObject):
    """The place of the one window. A lock says who has it, which goes with its process, however that ends."""

    wanted = Signal()
    """Another start wants the window."""

    def __init__(self, folder: Path, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._lock = FolderLock(folder / "chat.lock")
        digest = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:16]
        self._name = f"fallow-chat-{digest}"
        self._server: QLocalServer | None = None

    def begin(self) -> bool:
        """Take the place; False: another one has it, and was asked to show its window. Waits two seconds at most."""
        try:
            self._lock.acquire()
        except FolderBusy:
            self._ask_other()
            return False
        # What a killed program left behind would keep the name.
        QLocalServer.removeServer(self._name)
        self._server = QLocalServer(self)
        self._server.setSocketOptions(QLocalServer.SocketOption.UserAccessOption)
        self._server.newConnection.connect(self._asked)
        self._server.listen(self._name)
        return True

    def end(self) -> None:
        """Give the place up."""
        if self._server is not None:
            self._server.close()
            self._server = None
            self._lock.release()

    def _ask_other(self) -> None:
        socket = QLocalSocket()
        socket.connectToServer(self._name)
        socket.waitForConnected(WAIT_MS)
        socket.disconnectFromServer()

    def _asked(self) -> None:
        if self._server is not None and (socket := self._server.nextPendingConnection()) is not None:
            socket.disconnected.connect(socket.deleteLater)
            self.wanted.emit()
