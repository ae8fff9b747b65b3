"""The windows of the demo: the admin's, the owner's of one PC, and the chat, each a process of its own."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from console.chat_link import ChatLink
from installer.loopback import LoopbackFleet

LOOK_S = 0.2
STOP_S = 10.0


def show_windows(fleet: LoopbackFleet, folder: Path, agent: str, say: Callable[[str], None]) -> None:
    """Open the windows on a running fleet, and return when the admin's and the chat are closed.

    Nothing is kept in the keyring, and what is left open is closed on the way out, also by Ctrl-C.
    """
    pin = fleet.admin.authority().pin if fleet.api_url.startswith("https") else ""
    link = ChatLink(fleet.api_url, fleet.chat_key, pin).text()
    settings = folder / "settings"
    opened: list[subprocess.Popen[bytes]] = []
    try:
        _open(opened, ["console", "--data", str(fleet.console_folder), "--settings", str(settings)])
        chat = ["console.chat.app", "--data", str(folder / "chat"), "--settings", str(settings), "--link-from-stdin"]
        _open(opened, chat, link)
        _open(opened, ["agent.tray.app", "--data", str(fleet.agent_folder(agent)), "--show"])
        say(
            f"the windows are open: the console, the chat, and what {agent} shows its owner; close the first two to end"
        )
        while any(window.poll() is None for window in opened[:2]):
            time.sleep(LOOK_S)
    finally:
        _close(opened)


def _open(opened: list[subprocess.Popen[bytes]], module_and_options: Sequence[str], words: str = "") -> None:
    process = subprocess.Popen([sys.executable, "-m", *module_and_options], stdin=subprocess.PIPE)
    opened.append(process)
    if process.stdin is not None:
        # A secret goes through a pipe: a command line is public.
        process.stdin.write(f"{words}\n".encode())
        process.stdin.close()


def _close(opened: Sequence[subprocess.Popen[bytes]]) -> None:
    for process in opened:
        if process.poll() is None:
            process.terminate()
    for process in opened:
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
