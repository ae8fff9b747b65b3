"""`fallow-chat`: the process."""

from __future__ import annotations

import argparse
import signal
import sys
from importlib.metadata import version
from pathlib import Path

import platformdirs
from PySide6.QtCore import QSettings
from PySide6.QtWidgets import QApplication

from agent.logs.handlers import set_up
from agent.look import palettes
from agent.look.collecting import Collector
from agent.look.icons import app_icon
from agent.look.screen import EXIT_NO_SCREEN, why_no_screen
from console.chat.account import Account
from console.chat.window.desk import Desk
from console.chat.window.single import SingleWindow
from console.chat.window.window import ChatWindow
from console.chat_link import ChatLinkInvalid, read_link

EXIT_USAGE, EXIT_FOLDER, EXIT_OPEN = 2, 3, 4


def default_folder() -> Path:
    """Return where the chats are kept when nothing else is said."""
    return Path(platformdirs.user_data_dir("fallow-chat", appauthor=False))


def main(argv: list[str] | None = None) -> int:
    """Run the chat until its window is closed.

    Exit codes: 0 fine or handed over, 2 usage, 3 no folder, 4 a link was given and the chat is open already,
    20 no screen.
    """
    options = build_parser().parse_args(argv)
    if sentence := why_no_screen():
        sys.stderr.write(f"fallow-chat: {sentence}\n")
        return EXIT_NO_SCREEN
    try:
        link = read_link(sys.stdin.readline()) if options.link_from_stdin else None
    except ChatLinkInvalid as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_USAGE
    set_up(level="WARNING")
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
            if link is None:
                return 0
            sys.stderr.write("The chat is open already; close it first, to open it with a link.\n")
            return EXIT_OPEN
    except OSError as error:
        sys.stderr.write(f"The folder {options.data} cannot be used: {error.strerror}.\n")
        return EXIT_FOLDER
    # Before the first thread: a collection there would destroy what belongs to this one.
    collector = Collector(app)
    desk = Desk(options.data, Account(options.data, keeps=link is None))
    palettes.choose(app, desk.settings.theme)
    window = ChatWindow(desk, _settings(options.settings))
    single.wanted.connect(window.bring_up)
    window.start(link)
    window.bring_up()
    code = app.exec()
    desk.stop()
    collector.stop()
    single.end()
    return code


def _settings(folder: Path | None) -> QSettings:
    if folder is None:
        return QSettings("fallow", "chat")
    return QSettings(str(folder / "chat.ini"), QSettings.Format.IniFormat)


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of all arguments."""
    parser = argparse.ArgumentParser(prog="fallow-chat", description="Chat with the models of your organisation.")
    parser.add_argument("--version", action="version", version=f"fallow-chat {version('fallow')}")
    parser.add_argument("--data", type=Path, default=default_folder(), metavar="DIR", help="where chats are kept")
    parser.add_argument(
        "--settings", type=Path, metavar="DIR", help="where the window's size is kept; else among your settings"
    )
    # Never as an argument: a link holds a key, and a command line is public.
    parser.add_argument(
        "--link-from-stdin", action="store_true", help="sign in with the chat link on standard input, for this once"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
