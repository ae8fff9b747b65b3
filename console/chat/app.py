"""`fallow-chat`: the process."""

from __future__ import annotations

import argparse
import logging
import signal
import sys
from importlib.metadata import version
from pathlib import Path

import platformdirs
from PySide6.QtCore import QSettings
from PySide6.QtWidgets import QApplication

from agent.look import palettes
from agent.look.icons import app_icon
from console.chat.window.desk import Desk
from console.chat.window.single import SingleWindow
from console.chat.window.window import ChatWindow

EXIT_FOLDER = 3


def default_folder() -> Path:
    """Return where the chats are kept when nothing else is said."""
    return Path(platformdirs.user_data_dir("fallow-chat", appauthor=False))


def main(argv: list[str] | None = None) -> int:
    """Run the chat until its window is closed. Exit codes: 0 fine or handed over, 2 usage, 3 no folder."""
    options = _parser().parse_args(argv)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    # Ctrl-C in a terminal ends it; Qt's loop would never let Python see the signal.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    app = QApplication(sys.argv[:1])
    app.setApplicationName("fallow-chat")
    app.setApplicationDisplayName("Fallow chat")
    app.setDesktopFileName("fallow-chat")
    app.setWindowIcon(app_icon())
    try:
        options.data.mkdir(mode=0o700, parents=True, exist_ok=True)
        single = SingleWindow(options.data)
        if not single.begin():
            return 0
    except OSError as error:
        sys.stderr.write(f"The folder {options.data} cannot be used: {error.strerror}.\n")
        return EXIT_FOLDER
    desk = Desk(options.data)
    palettes.choose(app, desk.settings.theme)
    window = ChatWindow(desk, QSettings("fallow", "chat"))
    single.wanted.connect(window.bring_up)
    window.start()
    window.bring_up()
    code = app.exec()
    desk.stop()
    single.end()
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="fallow-chat", description="Chat with the models of your organisation.")
    parser.add_argument("--version", action="version", version=f"fallow-chat {version('fallow')}")
    parser.add_argument("--data", type=Path, default=default_folder(), metavar="DIR", help="where chats are kept")
    return parser


if __name__ == "__main__":
    sys.exit(main())
