"""Programs the tray starts: the service, the doctor without a service, the chat. No argument ever holds a secret."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
from PySide6.QtCore import QObject, QProcess, QUrl
from PySide6.QtGui import QDesktopServices

from agent.control.protocol import FindingShown
from agent.settings import LOG_NAME

CHAT_PROGRAM = "fallow-chat"
MAX_WORDS_BYTES = 16 * 1024
_COMPLAINT = "fallow-agent: "
"""How the command line begins the sentence it ends with."""


class _Report(msgspec.Struct):
    findings: list[FindingShown]


def findings_of(output: bytes) -> list[FindingShown] | None:
    """Read what `fallow-agent doctor --json` printed; None if it is no report."""
    try:
        return msgspec.json.decode(output, type=_Report).findings
    except msgspec.MsgspecError:
        return None


def agent_command() -> list[str]:
    """Return the program `fallow-agent`: this Python's own, or the one beside a frozen program."""
    if getattr(sys, "frozen", False):
        return [str(Path(sys.executable).with_name(f"fallow-agent{Path(sys.executable).suffix}"))]
    return [sys.executable, "-m", "agent"]


class Launch:
    """Starts programs for one data folder."""

    def __init__(self, folder: Path, command: list[str] | None = None) -> None:
        self._folder = folder
        self._command = command or agent_command()
        self._last_words: Path | None = None

    def service(self) -> bool:
        """Start the service on its own: it outlives the tray, and waits for an invite if this PC is in no fleet.

        Returns whether it could be started; `why_ended` tells when it has given up since. Call `forget_words` once
        that does not matter any more.
        """
        self.forget_words()
        process = QProcess()
        process.setProgram(self._command[0])
        # With a file of its own it logs nowhere else: what it writes on standard error is why it ends.
        log = ["--log-file", str(self._folder / LOG_NAME)]
        process.setArguments([*self._command[1:], "run", "--wait", "--data", str(self._folder), *log])
        process.setStandardInputFile(QProcess.nullDevice())
        process.setStandardOutputFile(QProcess.nullDevice())
        process.setStandardErrorFile(self._new_words())
        # The stubs promise a pair, as the static method gives; this one gives a bool.
        started: object = process.startDetached()
        if started is not True:
            self.forget_words()
        return started is True

    def why_ended(self) -> str:
        """Return the sentence with which the service that was started last has given up; empty while it has not."""
        try:
            said = b"" if self._last_words is None else self._last_words.read_bytes()[-MAX_WORDS_BYTES:]
        except OSError:
            return ""
        lines = [line for line in said.decode(errors="replace").splitlines() if line.startswith(_COMPLAINT)]
        return lines[-1].removeprefix(_COMPLAINT).strip() if lines else ""

    def forget_words(self) -> None:
        """Delete what the service that was started last wrote."""
        if self._last_words is not None:
            with contextlib.suppress(OSError):  # Windows deletes nothing that is open
                self._last_words.unlink()
            self._last_words = None

    def _new_words(self) -> str:
        try:
            handle, name = tempfile.mkstemp(prefix="fallow-start-")
        except OSError:
            return QProcess.nullDevice()
        os.close(handle)
        self._last_words = Path(name)
        return name

    def doctor(self, parent: QObject) -> QProcess:
        """Prepare an examination: connect to it, `start` it, and read its standard output when it has finished.

        It is not started here, because Windows says within `start` that a program cannot be started.
        """
        process = QProcess(parent)
        process.setProcessChannelMode(QProcess.ProcessChannelMode.SeparateChannels)
        process.setStandardErrorFile(QProcess.nullDevice())
        process.setProgram(self._command[0])
        process.setArguments([*self._command[1:], "doctor", "--json", "--data", str(self._folder)])
        return process

    def chat_program(self) -> str:
        """Return the chat program that is installed on this PC, or an empty text."""
        beside = Path(sys.executable).parent
        return shutil.which(CHAT_PROGRAM) or shutil.which(CHAT_PROGRAM, path=str(beside)) or ""

    def chat(self, url: str) -> bool:
        """Open the chat: the program, else the fleet's page in the browser. Returns whether something was opened."""
        program = self.chat_program()
        if program:
            return bool(QProcess.startDetached(program, [])[0])
        if urlsplit(url).scheme not in ("http", "https"):
            return False
        return QDesktopServices.openUrl(QUrl(url))
