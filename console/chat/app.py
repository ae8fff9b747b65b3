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
from agent.look.collecting import Collector
from agent.look.icons import app_icon
from console.chat.account import Account
from console.chat.window.desk import Desk
from console.chat.window.single import SingleWindow
from console.chat.window.window import ChatWindow
from console.chat_link import ChatLinkInvalid, read_link

EXIT_USAGE, EXIT_FOLDER = 2, 3


def default_folder() -> Path:
    """Return where the chats are kept when nothing else is said."""
    return Path(platformdirs.user_data_dir("fallow-chat", appauthor=False))


def main(argv: list[str] | None = None) -> int:
    """Run the chat until its window is closed. Exit codes: 0 fine or handed over, 2 usage, 3 no folder."""
    options = _parser().parse_args(argv)
    try:
        link = read_link(sys.stdin.readline()) if options.link_from_stdin else None
    except ChatLinkInvalid as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_USAGE
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
    # Who is handed a link for this once keeps nothing of it.
    desk = Desk(options.data, Account(options.data, lambda: None) if link else None)
    palettes.choose(app, desk.settings.theme)
    window = ChatWindow(desk, QSettings("fallow", "chat"))
    single.wanted.connect(window.bring_up)
    window.start(link)
    collector = Collector(app)
    app.aboutToQuit.connect(collector.stop)
    window.bring_up()
    code = app.exec()
    desk.stop()
    single.end()
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="fallow-chat", description="Chat with the models of your organisation.")
    parser.add_argument("--version", action="version", version=f"fallow-chat {version('fallow')}")
    parser.add_argument("--data", type=Path, default=default_folder(), metavar="DIR", help="where chats are kept")
    # Never as an argument: a link holds a key, and a command line is public.
    parser.add_argument(
        "--link-from-stdin", action="store_true", help="sign in with the chat link on standard input, for this once"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
