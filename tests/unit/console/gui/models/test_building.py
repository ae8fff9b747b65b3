"""The build wizard before a real service whose exporter only plays: from a folder to a library that can be deployed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QCheckBox
from pytestqt.qtbot import QtBot

from console.gui.asking import Question
from console.gui.models.adding import AddDialog
from console.gui.models.page import ModelsPage
from console.gui.models.running import BuildView
from console.gui.models.wizard import ESTIMATE, OPTIONS, PICK, RUN, BuildWizard
from console.gui.page import Desk, Page
from tests.support.builds import Stage, make_played_checkpoint
from tests.support.console_thread import ConsoleThread, console_thread

Show = Callable[[Page], Page]


class Console:
    """A service, what its exporter is told, and the folder of its models."""

    def __init__(self, thread: ConsoleThread, stage: Stage, root: Path) -> None:
        self.thread, self.stage, self.root = thread, stage, root


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Console]:
    stage = Stage(tmp_path / "stage")
    root = tmp_path / "models"
    make_played_checkpoint(root / "toy")
    monkeypatch.setattr("console.builds.jobs.Exporter", lambda: stage.exporter)
    with console_thread(tmp_path / "console", models_folder=root) as thread:
        yield Console(thread, stage, root)


@pytest.fixture
def console(built: Console) -> ConsoleThread:
    """What `desk` is before."""
    return built.thread


@pytest.fixture
def page(desk: Desk, shown: Show, qtbot: QtBot) -> ModelsPage:
    made = ModelsPage(desk)
    shown(made)
    qtbot.waitUntil(lambda: desk.libraries.latest == [])
    return made


def pick(wizard: BuildWizard, qtbot: QtBot) -> None:
    qtbot.waitUntil(lambda: wizard.pick.list.count() == 1)
    assert wizard.pick.list.item(0).text().startswith("toy   (model, ")
    assert not wizard.next.isEnabled()
    wizard.pick.list.setCurrentRow(0)
    wizard.next.click()
    assert wizard.stack.currentIndex() == OPTIONS


def start(wizard: BuildWizard, qtbot: QtBot) -> BuildView:
    wizard.next.click()
    assert wizard.stack.currentIndex() == ESTIMATE
    qtbot.waitUntil(wizard.next.isEnabled)
    wizard.next.click()
    qtbot.waitUntil(lambda: wizard.stack.currentIndex() == RUN)
    view = wizard.run
    qtbot.waitUntil(lambda: view.build is not None)
    return view


def test_from_a_folder_to_a_library_that_can_be_deployed(page: ModelsPage, built: Console, qtbot: QtBot) -> None:
    wizard = page.open_wizard()
    assert wizard.stack.currentIndex() == PICK
    pick(wizard, qtbot)
    assert wizard.options.out.text() == str(built.root / "fallow-libraries" / "toy")
    wizard.options.evaluate.setChecked(True)
    built.stage.let(2)
    view = start(wizard, qtbot)
    qtbot.waitUntil(lambda: ("Layers", "2 of 4") in view.bars.texts)
    assert view.facts.values["Rate"].text() == "0.5 s a layer"
    assert "layer 2 of 4" in view.log.toPlainText()
    wizard.close()  # leaving does not stop it
    built.stage.let()
    qtbot.waitUntil(lambda: [one.model_id for one in page.library_model.items] == ["toy"])
    page.select("toy")
    assert page.view.facts.values["Quality"].text() == "83.1% same token, KL 0.104"
    dialog = page.open_deploy("toy")
    qtbot.waitUntil(lambda: dialog.preview.said.text() not in {"Asking the planner…", ""})
    assert not dialog.go.isEnabled(), "no PC is there"
    dialog.close()


def test_pausing_ending_and_going_on_say_what_is_kept(page: ModelsPage, built: Console, qtbot: QtBot) -> None:
    wizard = page.open_wizard()
    pick(wizard, qtbot)
    built.stage.let(2)
    view = start(wizard, qtbot)
    qtbot.waitUntil(lambda: ("Layers", "2 of 4") in view.bars.texts)
    view.pause.click()
    qtbot.waitUntil(view.resume.isVisible)
    assert view.message.text() == "It was paused: 2 finished layers are kept, and resuming goes on from there."
    view.cancel.click()
    (question,) = view.findChildren(Question)
    (tick,) = question.findChildren(QCheckBox)
    assert tick.text() == "Remove the 2 finished layers, too"
    question.reject()
    built.stage.fail("The disk of the console's PC is full; free some space.")
    built.stage.let(3)
    view.resume.click()
    qtbot.waitUntil(lambda: view.headline.text() == "toy: failed")
    assert "The disk of the console's PC is full" in view.message.text()
    assert view.resume.isVisible()
    built.stage.fail("")
    view.resume.click()
    qtbot.waitUntil(lambda: ("Layers", "3 of 4") in view.bars.texts)
    view.cancel.click()
    question = view.findChildren(Question)[-1]
    question.tick.setChecked(True)
    question.yes.click()
    qtbot.waitUntil(lambda: "nothing of it is kept" in view.message.text())
    assert not view.cancel.isVisible()
    wizard.close()


def test_what_is_against_a_build_is_said_before_it_starts(page: ModelsPage, built: Console, qtbot: QtBot) -> None:
    make_played_checkpoint(built.root / "toy", family="mamba")
    wizard = page.open_wizard()
    pick(wizard, qtbot)
    wizard.next.click()
    qtbot.waitUntil(lambda: "mamba cannot be built" in wizard.estimate.problems.text())
    assert not wizard.next.isEnabled()
    assert wizard.estimate.bars.texts[0][0] == "Memory at most"
    wizard.back.click()
    wizard.options.out.setText("/")
    wizard.next.click()
    qtbot.waitUntil(lambda: "is not below" in wizard.estimate.problems.text())
    wizard.close()


def test_a_model_whose_path_is_typed_is_chosen_and_enter_presses_no_button(
    page: ModelsPage, built: Console, qtbot: QtBot
) -> None:
    (built.root / "small.gguf").write_bytes(b"GGUF")
    wizard = page.open_wizard()
    qtbot.waitUntil(lambda: wizard.pick.list.count() == 2)
    wizard.pick.list.setCurrentRow(1)
    assert wizard.next.isEnabled()
    assert wizard.next.isDefault()
    for name, said in (("toy", "This is a model"), ("small.gguf", "This is a GGUF model")):
        wizard.pick.path.setText(str(built.root / name))
        QTest.keyClick(wizard.pick.path, Qt.Key.Key_Return)
        assert wizard.stack.currentIndex() == PICK, "Enter opens what was typed"
        assert not wizard.next.isEnabled(), "what was selected before is not taken for it"
        qtbot.waitUntil(wizard.next.isEnabled)
        assert wizard.pick.said.text() == f"{said}, and it is chosen."
    wizard.next.click()
    assert wizard.options.out.text() == str(built.root / "fallow-libraries" / "small")
    wizard.close()


def test_going_back_leaves_the_estimate_and_a_folder_that_was_typed(
    page: ModelsPage, built: Console, qtbot: QtBot
) -> None:
    wizard = page.open_wizard()
    pick(wizard, qtbot)
    wizard.options.out.setText(str(built.root / "mine"))
    wizard.next.click()
    asked = wizard._asking
    assert asked is not None
    wizard.back.click()
    wizard.next.click()
    assert wizard._asking is not asked
    wizard.back.click()
    assert wizard._asking is None, "no answer comes to a step that asked nothing"
    assert wizard.next.isEnabled()
    wizard.back.click()
    wizard.next.click()
    assert wizard.options.out.text() == str(built.root / "mine"), "the source is the same"
    wizard.next.click()
    qtbot.waitUntil(wizard.next.isEnabled)
    wizard.close()


def test_a_library_on_the_disk_is_added_by_its_folder(page: ModelsPage, built: Console, qtbot: QtBot) -> None:
    (built.stage.folder / "library").rename(built.root / "ready")
    page.add.click()
    (dialog,) = page.findChildren(AddDialog)
    qtbot.waitUntil(lambda: dialog.pick.list.count() == 2)
    dialog.pick.list.setCurrentRow(0)
    assert dialog.add.isEnabled()
    dialog.add.click()
    qtbot.waitUntil(lambda: page.library_model.rowCount() == 1)
