"""`fallow-console` without a subcommand: the process of the window."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Literal

from PySide6.QtCore import QSettings
from PySide6.QtWidgets import QApplication

from agent.logs.handlers import set_up
from agent.look import palettes
from agent.look.collecting import Collector
from agent.look.icons import app_icon
from agent.look.screen import EXIT_NO_SCREEN, why_no_screen
from console.gui.pages import PAGES
from console.gui.program import ConsoleProgram


def run(
    folder: Path, colours: palettes.Scheme | Literal["system"] = "system", settings_folder: Path | None = None
) -> int:
    """Show the window until it is closed; `folder` is the data folder of the service on this PC. 20: no screen.

    `settings_folder` is where it keeps which service it was at; None: among the user's settings.
    """
    if sentence := why_no_screen():
        sys.stderr.write(f"fallow-console: {sentence}\n")
        return EXIT_NO_SCREEN
    set_up(level="WARNING")
    # Ctrl-C in a terminal ends it; Qt's loop would never let Python see the signal.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    app = QApplication(sys.argv[:1])
    app.setApplicationName("fallow-console")
    app.setApplicationDisplayName("Fallow console")
    app.setDesktopFileName("fallow-console")
    app.setWindowIcon(app_icon())
    palettes.choose(app, colours)
    program = ConsoleProgram(folder, QSettings("fallow", "console"), PAGES, settings_folder=settings_folder)
    app.aboutToQuit.connect(program.stop)
    collector = Collector(app)
    app.aboutToQuit.connect(collector.stop)
    program.start()
    return app.exec()
