"""Somebody's first steps in the windows, from nothing to an answer: `python -m tests.support.first_steps FOLDER`.

A program of its own, on the screen that DISPLAY names: every step is a click or a key on a real window. FOLDER holds
`model.gguf`, and gets everything else. Prints each step with the seconds it took, and ends with one JSON object.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from PySide6.QtCore import QSettings, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QAbstractItemView, QApplication, QPushButton, QWidget

from agent.look import palettes
from console.chat.account import Account
from console.chat.window.desk import Desk
from console.chat.window.window import ChatWindow
from console.gui.asking import Question
from console.gui.devices.page import DevicesPage
from console.gui.invites.new import NewInvite
from console.gui.invites.page import InvitesPage
from console.gui.models.deploying import DeployDialog
from console.gui.models.page import ModelsPage
from console.gui.models.wizard import BuildWizard
from console.gui.pages import PAGES
from console.gui.people.forms import NewKey
from console.gui.people.page import PeoplePage
from console.gui.program import ConsoleProgram
from console.gui.programs import Programs
from console.gui.secret import SecretDialog

LONG_S = 300.0
QUESTION = "What is the capital of France?"
ANY_PORT = (
    "import sys; from console.cli import main; sys.exit(main([*sys.argv[1:], '--agents-port=0', '--api-port=0']))"
)
PCS = ("first-pc", "second-pc")

W = TypeVar("W", bound=QWidget)
N = TypeVar("N")


class Steps:
    """Does one step after the other and keeps a picture of each."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.taken: list[dict[str, Any]] = []
        self.agents: list[subprocess.Popen[bytes]] = []
        programs = Programs(folder / "console", [sys.executable, "-c", ANY_PORT])
        settings = QSettings(str(folder / "window.ini"), QSettings.Format.IniFormat)
        self.program = ConsoleProgram(
            folder / "console", settings, PAGES, settings_folder=folder / "settings", programs=programs
        )
        self.chat: ChatWindow | None = None

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        began_s = time.monotonic()
        yield
        self.taken.append({"step": name, "seconds": round(time.monotonic() - began_s, 1)})
        sys.stderr.write(f"{self.taken[-1]}\n")

    def picture(self, name: str, widget: QWidget | None = None) -> None:
        if kept := os.environ.get("FALLOW_PICTURES"):
            assert (widget or self.program.window).grab().save(str(Path(kept) / f"steps-{len(self.taken)}-{name}.png"))

    def walk(self) -> None:
        self.program.start()
        for name, do in (
            ("start the service", self.start_service),
            ("make an invite", self.make_invite),
            ("join with two PCs", self.join),
            ("approve them", self.approve),
            ("choose a checkpoint and build", self.build),
            ("deploy the model", self.deploy),
            ("make a chat link", self.make_link),
            ("sign in to the chat", self.sign_in),
            ("ask", self.ask),
        ):
            with self.step(name):
                do()

    def close(self) -> None:
        for agent in self.agents:
            agent.terminate()
        for agent in self.agents:
            agent.wait(30)
        if self.chat is not None:
            self.chat.desk.stop()
            self.chat.close()
        self.program.stop()

    def start_service(self) -> None:
        dialog = until(lambda: self.program.dialog, "the dialog that connects")
        until(dialog.start.isVisible, "the offer to start the service")
        self.picture("connect", dialog)
        click(dialog.start)
        until(lambda: self.program.desk, "the service")
        until(lambda: self.program.dialog is None, "the dialog closed")

    def make_invite(self) -> None:
        page = self.page(InvitesPage)
        click(page.new)
        dialog = dialog_of(NewInvite)
        dialog.uses.setValue(len(PCS))
        dialog.hint.setText("The lab")
        self.picture("invite", dialog)
        click(dialog.yes)
        secret = dialog_of(SecretDialog)
        self.picture("secret", secret)
        self.invite = secret.text.toPlainText()
        secret.close()

    def join(self) -> None:
        for name in PCS:
            joining = self.start_agent(name, "enrol", "--name", name, stdin=subprocess.PIPE)
            assert joining.stdin is not None
            joining.stdin.write(self.invite.encode())
            joining.stdin.close()

    def start_agent(self, name: str, *options: str, stdin: int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "agent", options[0], "--data", str(self.folder / name), *options[1:]]
        with (self.folder / f"{name}.log").open("ab") as log:
            self.agents.append(subprocess.Popen(command, stdin=stdin, stdout=log, stderr=log))
        return self.agents[-1]

    def approve(self) -> None:
        page = self.page(DevicesPage)
        until(lambda: page.model.rowCount() == len(PCS), "two PCs that wait")
        click_row(page.table, 0)
        QTest.keyClick(page.table, Qt.Key.Key_A, Qt.KeyboardModifier.ControlModifier)
        self.picture("devices")
        click(page.bulk.buttons["approve"])
        click(dialog_of(Question).yes)
        until(lambda: all(agent.poll() == 0 for agent in self.agents), "two PCs that joined")
        for name in PCS:
            self.start_agent(name, "run", "--volunteer", "always", "--threads", "1")
        until(
            lambda: all(agent.volunteering == "available" for agent in page.desk.agents.latest or []), "two PCs at work"
        )

    def build(self) -> None:
        page = self.page(ModelsPage)
        click(page.build)
        wizard = dialog_of(BuildWizard)
        until(lambda: wizard.pick.list.count() > 0, "the folder")
        names = [wizard.pick.list.item(row).text() for row in range(wizard.pick.list.count())]
        click_row(wizard.pick.list, next(row for row, name in enumerate(names) if name.startswith("model.gguf")))
        click(wizard.next)
        click(wizard.next)
        until(wizard.next.isEnabled, "the estimate")
        self.picture("estimate", wizard)
        click(wizard.next)
        view = until(lambda: getattr(wizard, "run", None), "the build")
        until(lambda: view.build is not None and view.build.layer > 3, "some layers")
        self.picture("building", wizard)
        until(lambda: view.build is not None and view.build.published, "the library")
        self.picture("built", wizard)
        click(view.deploy_now)

    def deploy(self) -> None:
        dialog = dialog_of(DeployDialog)
        dialog.form.stages.setValue(2)
        until(lambda: dialog.preview.table.rowCount() == 2 and dialog.go.isEnabled(), "a plan of two stages")
        self.picture("plan", dialog)
        click(dialog.go)
        until(lambda: self.pipelines() and self.pipelines()[0].state == "ready", "the model")
        self.picture("deployed", dialog)
        dialog.close()
        self.page(ModelsPage)
        self.picture("models")

    def make_link(self) -> None:
        page = self.page(PeoplePage)
        page.tabs.setCurrentWidget(page.api_keys)
        click(page.api_keys.buttons["new"])
        dialog = dialog_of(NewKey)
        dialog.name.setText("The lab's chat")
        dialog.link.setChecked(True)
        click(dialog.yes)
        secret = dialog_of(SecretDialog)
        self.link = secret.text.toPlainText()
        secret.close()

    def sign_in(self) -> None:
        folder = self.folder / "chat"
        folder.mkdir()
        chat = self.chat = ChatWindow(
            Desk(folder, Account(folder, lambda: None)),
            QSettings(str(self.folder / "chat.ini"), QSettings.Format.IniFormat),
        )
        chat.start()
        chat.bring_up()
        until(chat.signin.link.isVisible, "the page to sign in on")
        self.picture("signin", chat)
        chat.signin.link.setText(self.link)
        click(chat.signin.go)
        until(lambda: bool(chat.desk.models), "the models")

    def ask(self) -> None:
        chat = self.chat
        assert chat is not None
        field = chat.page.composer.field
        until(field.isVisible, "the text field")
        QTest.keyClicks(field, QUESTION)
        QTest.keyClick(field, Qt.Key.Key_Return)
        self.picture("asked", chat)
        until(lambda: any(one.role == "assistant" and one.text for one in chat.desk.branch), "an answer")
        self.picture("answer", chat)

    def pipelines(self) -> list[Any]:
        desk = self.program.desk
        assert desk is not None
        return desk.status.latest.pipelines if desk.status.latest else []

    def page(self, kind: type[W]) -> W:
        """Bring a page into sight by a click on its name."""
        window = self.program.window
        click_row(window.list, list(window.pages).index(kind.name))  # type: ignore[attr-defined]  # of Page
        page = window.pages[kind.name]  # type: ignore[attr-defined]
        assert isinstance(page, kind)
        until(page.isVisible, f"the page {page.objectName()}")
        return page


def until(look: Callable[[], N | None], what: str) -> N:
    """Wait for what `look` finds; returns it."""
    deadline_s = time.monotonic() + LONG_S
    while not (found := look()):
        assert time.monotonic() < deadline_s, f"{what}: not within {LONG_S:.0f} s"
        QTest.qWait(50)
    return found


def click(button: QPushButton) -> None:
    """Click a button as soon as it can be clicked."""
    until(lambda: button.isVisible() and button.isEnabled(), f"the button {button.text()}")
    QTest.mouseClick(button, Qt.MouseButton.LeftButton)


def click_row(view: QAbstractItemView, row: int) -> None:
    """Click a row of a list or table."""
    until(lambda: view.model().rowCount() > row, "a row")
    index = view.model().index(row, 0)
    QTest.mouseClick(view.viewport(), Qt.MouseButton.LeftButton, pos=view.visualRect(index).center())


def dialog_of(kind: type[W]) -> W:
    """Wait for a dialog."""
    return until(
        lambda: next((one for one in QApplication.allWidgets() if isinstance(one, kind) and one.isVisible()), None),
        f"the dialog {kind.__name__}",
    )


def main() -> int:
    """Walk; returns 0 when there was an answer."""
    folder = Path(sys.argv[1])
    app = QApplication(sys.argv[:1])
    app.setQuitOnLastWindowClosed(False)
    palettes.apply(app, "light")
    steps = Steps(folder)
    try:
        steps.walk()
    finally:
        steps.close()
    sys.stdout.write(json.dumps({"steps": steps.taken}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
