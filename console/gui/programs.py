"""Programs the windows start: the service on this PC, the chat. No argument ever holds a secret."""

from __future__ import annotations

import shutil
import sys
from collections import deque
from pathlib import Path

from PySide6.QtCore import QProcess

from console.data import log_path, prepare

CHAT_PROGRAM = "fallow-chat"
LOG_LINES = 12
ERROR = "fallow-console: "
"""How the command line begins the sentence it ends with."""


def console_command() -> list[str]:
    """Return the program `fallow-console`: this Python's own, or the one beside a frozen program."""
    if getattr(sys, "frozen", False):
        return [str(Path(sys.executable).with_name(f"fallow-console{Path(sys.executable).suffix}"))]
    return [sys.executable, "-m", "console"]


class Programs:
    """Starts programs for one data folder. GUI thread."""

    def __init__(self, folder: Path, command: list[str] | None = None) -> None:
        self.folder = folder
        self._command = command or console_command()

    @property
    def log_file(self) -> Path:
        """Where a service that was started here writes what it does."""
        return log_path(self.folder)

    @property
    def said_file(self) -> Path:
        """What it says beside its log: its addresses, and the sentence it ended with."""
        return self.folder / "service.out"

    def service(self) -> bool:
        """Start the service on its own, so that it outlives the window. Returns whether it could be started.

        Raises DataFolderUnusable.
        """
        prepare(self.folder)
        process = QProcess()
        process.setProgram(self._command[0])
        where = ["--data", str(self.folder), "--log-file", str(self.log_file)]
        process.setArguments([*self._command[1:], "serve", *where])
        process.setStandardInputFile(QProcess.nullDevice())
        process.setProcessChannelMode(QProcess.ProcessChannelMode.MergedChannels)
        process.setStandardOutputFile(str(self.said_file), QProcess.OpenModeFlag.Truncate)
        # The stubs promise a pair, as the static method gives; this one gives a bool.
        started: object = process.startDetached()
        return started is True

    def support_bundle(self, out: Path, *, doctor: bool) -> QProcess:
        """Return what writes a support bundle to `out` once it is started: its manifest comes as JSON.

        What it is at, and the sentence it ends with if it fails, come on standard error.
        """
        process = QProcess()
        process.setProgram(self._command[0])
        asked = ["support-bundle", "--data", str(self.folder), "--out", str(out), "--json"]
        process.setArguments([*self._command[1:], *asked, *([] if doctor else ["--no-doctor"])])
        process.setStandardInputFile(QProcess.nullDevice())
        return process

    def why_not(self) -> str:
        """Return the sentence with which a service that was started here ended; empty while it runs."""
        try:
            with self.said_file.open(encoding="utf-8", errors="replace") as file:
                said = [line for line in deque(file, LOG_LINES) if line.startswith(ERROR)]
        except OSError:
            return ""
        return said[-1].removeprefix(ERROR).strip() if said else ""


def chat_program() -> str:
    """Return the chat program that is installed on this PC, or an empty text."""
    beside = Path(sys.executable).parent
    return shutil.which(CHAT_PROGRAM) or shutil.which(CHAT_PROGRAM, path=str(beside)) or ""


def open_chat() -> bool:
    """Open the chat window. Returns whether it could be started."""
    program = chat_program()
    return bool(program) and bool(QProcess.startDetached(program, [])[0])
