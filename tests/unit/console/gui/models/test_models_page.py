"""console.gui.models.page with what a service would say: tables that stay, links, copying, questions, states."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from PySide6.QtCore import QCoreApplication, QEvent, QItemSelectionModel
from PySide6.QtGui import QGuiApplication
from PySide6.QtTest import QAbstractItemModelTester
from PySide6.QtWidgets import QAbstractButton, QComboBox, QLineEdit, QSpinBox

from console.api.admin import types as wire
from console.api.admin.build_types import Builds
from console.errors import ServiceRefused, ServiceUnreachable
from console.gui.asking import Question
from console.gui.models.page import ModelsPage
from console.gui.page import Desk
from tests.support.shown_fleet import device_id, make_pipeline
from tests.unit.console.gui.models.conftest import Asked, Show, click, make_library, tell
from tests.unit.console.gui.models.test_texts import make_build


def test_rows_keep_their_place_selection_and_scroll_while_they_change(page: ModelsPage) -> None:
    many = [make_library(f"model-{index:02}") for index in range(60)]
    tell(page, many)
    tester = QAbstractItemModelTester(page.library_model, QAbstractItemModelTester.FailureReportingMode.Fatal)
    page.select("model-20")
    page.libraries.verticalScrollBar().setValue(5)
    touched: list[int] = []
    resets: list[bool] = []
    page.library_model.dataChanged.connect(lambda first, _: touched.append(first.row()))
    page.library_model.modelReset.connect(lambda: resets.append(True))
    tell(page, many, make_pipeline("model-30"))
    tell(page, many, make_pipeline("model-30"))
    assert (touched, resets) == ([30], [])
    later = [make_library("first"), *many]
    tell(page, later, make_pipeline("model-30"))
    touched.clear()
    tell(page, later, make_pipeline("first"))
    assert touched == [30, 60], "a later library is the last row, wherever the service lists it"
    tell(page, many, make_pipeline("model-30"))
    tell(page, [one for one in many if one.model_id != "model-40"], make_pipeline("model-30"))
    assert page.view.library is not None
    assert page.view.library.model_id == "model-20"
    assert page.libraries.verticalScrollBar().value() == 5
    assert tester.model() is page.library_model


def test_a_page_says_that_it_waits_that_there_is_nothing_and_what_went_wrong(
    quiet_desk: Desk, asked: Asked, shown: Show
) -> None:
    page = ModelsPage(quiet_desk)
    shown(page)
    assert page.states.text.text() == "Asking the service…"
    quiet_desk.libraries.failed.emit(ServiceRefused("Not for you.", status=403))
    assert page.states.text.text() == "Not for you."
    tell(page, [])
    assert "Build one from a model" in page.states.text.text()
    tell(page, [make_library()])
    assert page.states.is_content
    quiet_desk.libraries.failed.emit(ServiceUnreachable("It is away."))
    assert page.states.is_content, "what was heard last stays"


def test_a_served_model_links_to_its_pcs(page: ModelsPage) -> None:
    tell(page, page.desk.libraries.latest, make_pipeline())
    wanted: list[tuple[str, str]] = []
    page.wants.connect(lambda name, what: wanted.append((name, what)))
    page.select("qwen3-4b")
    (card,) = page.view.pipelines
    assert "A token came through all stages 3 s ago" in card.state.text()
    card.stages.cellActivated.emit(1, 0)
    assert wanted == [("devices", device_id(1))]
    assert page.library_model.index(0, 1).data() == "ready, 3 PCs"
    assert not page.view.forget.isEnabled()


def test_curl_and_base_url_are_copied_without_a_key(page: ModelsPage) -> None:
    tell(page, page.desk.libraries.latest, make_pipeline())
    page.select("qwen3-4b")
    click(page.view.curl)
    command = QGuiApplication.clipboard().text()
    assert '"model": "qwen3-4b"' in command
    assert page.desk.bridge.access.token not in command
    click(page.view.url)
    assert QGuiApplication.clipboard().text() == f"{page.desk.bridge.access.url}/v1"


def test_the_chat_is_opened_or_its_absence_is_said(page: ModelsPage, monkeypatch: pytest.MonkeyPatch) -> None:
    tell(page, page.desk.libraries.latest, make_pipeline())
    page.select("qwen3-4b")
    said: list[str] = []
    page.said.connect(lambda text, _: said.append(text))
    monkeypatch.setattr("console.gui.handing.open_chat", lambda: False)
    click(page.view.open_chat)
    assert "is fallow-chat installed" in said[0]


def test_a_library_that_cannot_be_used_says_why_and_can_only_be_removed(page: ModelsPage, asked: Asked) -> None:
    page.select("bad")
    assert page.view.problem.text() == "It is torn. Then add it again."
    assert not page.view.deploy_now.isVisible()
    click(page.view.forget)
    (question,) = page.findChildren(Question)
    assert not any(method == "DELETE" for method, _, _ in asked.calls), "nothing before the answer"
    question.yes.click()
    answer, _ = asked.last("DELETE /admin/v1/libraries/bad")
    said: list[tuple[str, bool]] = []
    page.said.connect(lambda text, failed: said.append((text, failed)))
    answer(None)
    assert said == [("bad is not on the list any more.", False)]


def test_taking_a_model_down_asks_first_and_says_what_it_costs(page: ModelsPage, asked: Asked) -> None:
    tell(page, page.desk.libraries.latest, make_pipeline())
    page.select("qwen3-4b")
    click(page.view.take_down)
    (question,) = page.findChildren(Question)
    question.reject()
    click(page.view.take_down)
    question = page.findChildren(Question)[-1]
    question.yes.click()
    asked.last("DELETE /admin/v1/deployments/qwen3-4b")


def test_builds_are_listed_while_they_matter_and_counted_beside_the_page(page: ModelsPage) -> None:
    badges: list[str] = []
    page.badge.connect(badges.append)
    done = make_build(build_id="b2", state="built", published=True)
    page.builds.came.emit(Builds([make_build(), done, make_build(build_id="b3", state="cancelled")]))
    assert [build.build_id for build in page.build_model.items] == ["b1"]
    assert page.builds_table.isVisible()
    assert badges == ["1"]
    page.builds.came.emit(Builds([], missing="Install the exporter."))
    assert not page.builds_table.isVisible()
    assert page.missing.text() == "Install the exporter."
    assert not page.build.isEnabled()


def test_answers_that_come_after_a_window_was_closed_are_heard_by_nobody(page: ModelsPage, asked: Asked) -> None:
    tell(page, page.desk.libraries.latest, make_pipeline())
    windows = [page.open_wizard(), page.open_deploy("qwen3-4b"), page.open_delivery("small"), page.open_build("b1")]
    heard = [callbacks for _, _, callbacks in asked.calls]
    page.rollouts.begin(wire.DeployRequest("qwen3-4b"))
    for window in windows:
        window.close()
    QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete.value)
    for callbacks in heard:
        for callback in callbacks:
            callback(ServiceUnreachable("It is away."))
    asked.last("POST /admin/v1/deployments")[0](wire.Note("It goes on."))
    rollout = page.rollouts.find("qwen3-4b")
    assert rollout is not None
    assert rollout.notes == ("It goes on.",)


def test_every_button_and_field_has_a_name_to_be_read_out(page: ModelsPage, asked: Asked) -> None:
    page.select("qwen3-4b")
    windows = [page, page.open_deploy("qwen3-4b"), page.open_wizard()]
    for window in windows:
        for pressed in window.findChildren(QAbstractButton):
            assert pressed.text() or pressed.accessibleName() or not pressed.isVisible() or _is_inner(pressed)
        for kind in (QComboBox, QSpinBox, QLineEdit):
            for field in window.findChildren(kind):
                assert field.accessibleName() or _is_inner(field), field


def _is_inner(widget: Any) -> bool:
    """A part of a spin box, a combo box or a table."""
    return widget.objectName().startswith("qt_") or type(widget.parent()).__name__ in {
        "QSpinBox", "QDoubleSpinBox", "QComboBox", "Table", "RowsView",
    }  # fmt: skip


def test_somebody_who_may_only_look_is_offered_no_orders(quiet_desk: Desk, asked: Asked, shown: Show) -> None:
    quiet_desk.me = msgspec.structs.replace(quiet_desk.me, scopes=["view"])
    page = ModelsPage(quiet_desk)
    shown(page)
    tell(page, [make_library()], make_pipeline())
    page.libraries.selectionModel().select(
        page.library_model.index(0, 0),
        QItemSelectionModel.SelectionFlag.Select | QItemSelectionModel.SelectionFlag.Rows,
    )
    assert not page.build.isEnabled()
    for button in (page.view.deploy_now, page.view.take_down, page.view.bring, page.view.forget):
        assert not button.isVisible()
    assert page.view.curl.isVisible()
