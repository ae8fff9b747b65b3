"""`fallow-tray`: the process. Its windows own nothing: whatever they show is the service's."""

from __future__ import annotations

import argparse
import logging
import signal
import sys
from importlib.metadata import version
from pathlib import Path

from PySide6.QtCore import QLocale, QSettings
from PySide6.QtWidgets import QApplication, QMessageBox

from agent.logs.handlers import set_up
from agent.look import palettes
from agent.look.collecting import Collector
from agent.look.icons import app_icon
from agent.look.screen import EXIT_NO_SCREEN, why_no_screen
from agent.settings import default_data_folder
from agent.tray.program import TrayProgram
from agent.tray.single import SingleInstance, Start
from agent.tray.texts import LANGUAGES, Texts, load_texts

log = logging.getLogger(__name__)

EXIT_OTHER_HANGS = 19


def main(argv: list[str] | None = None) -> int:
    """Run the tray until it is quit.

    Exit codes: 0 fine or handed over, 2 usage, 19 the other tray hangs, 20 no screen.
    """
    options = build_parser().parse_args(argv)
    if sentence := why_no_screen():
        sys.stderr.write(f"fallow-tray: {sentence}\n")
        return EXIT_NO_SCREEN
    set_up()
    # Ctrl-C in a terminal ends it; Qt's loop would never let Python see the signal.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    app = QApplication(sys.argv[:1])
    app.setApplicationName("fallow-tray")
    app.setApplicationDisplayName("Fallow")
    app.setDesktopFileName("fallow-tray")
    app.setWindowIcon(app_icon())
    app.setQuitOnLastWindowClosed(False)
    texts = load_texts(options.language or QLocale.system().name())
    settings = QSettings("fallow", "tray")
    palettes.choose(app, options.colours)
    single = SingleInstance(options.data)
    wish = "enrol" if options.enrol else "show"
    started = single.begin(wish)
    if started is Start.OTHER_HANGS and _may_end_other(texts) and single.end_other():
        started = single.begin(wish)
    if started is Start.HANDED_OVER:
        return 0
    if started is Start.OTHER_HANGS:
        log.error(texts("single.hangs"))
        return EXIT_OTHER_HANGS
    program = TrayProgram(options.data, texts, settings)
    app.aboutToQuit.connect(program.stop)
    collector = Collector(app)
    app.aboutToQuit.connect(collector.stop)
    program.start()
    if options.show:
        program.open_window()
    if options.enrol:
        program.enrol()
    code = app.exec()
    single.end()
    return code


def _may_end_other(texts: Texts) -> bool:
    box = QMessageBox(QMessageBox.Icon.Question, "Fallow", texts("single.ask"))
    end = box.addButton(texts("single.end"), QMessageBox.ButtonRole.AcceptRole)
    box.addButton(texts("button.cancel"), QMessageBox.ButtonRole.RejectRole)
    box.exec()
    return box.clickedButton() is end


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of all arguments."""
    parser = argparse.ArgumentParser(prog="fallow-tray", description="Show what this PC does for its fleet.")
    parser.add_argument("--version", action="version", version=f"fallow-tray {version('fallow')}")
    parser.add_argument("--data", type=Path, default=default_data_folder(), metavar="DIR", help="the data folder")
    parser.add_argument("--show", action="store_true", help="open the window at once")
    parser.add_argument("--enrol", action="store_true", help="open the dialog for joining a fleet")
    parser.add_argument("--language", choices=LANGUAGES, help="instead of the system's")
    parser.add_argument("--colours", choices=("system", *palettes.SCHEMES), default="system", help="of the windows")
    return parser


if __name__ == "__main__":
    sys.exit(main())
