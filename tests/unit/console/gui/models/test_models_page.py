"""console.gui.models.page with what a service would say: tables that stay, links, copying, questions, states."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from PySide6.QtCore import QCoreApplication, QEvent, QItemSelectionModel
from PySide6.QtGui import QGuiApplication
from PySide6.QtTest import QAbstractItemModelTester
from PySide6.QtWidgets import QAbstractButton, QComboBox, QLineEdit, QSpinBox
from pytestqt.qtbot import QtBot

from console.api.admin import types as wire
from console.api.admin.build_types import BuildDetail, Builds
from console.api.admin.plan_types import PlannedPipeline, Plans
from console.call import Call, LineCall
from console.errors import ServiceRefused, ServiceUnreachable
from console.fleet.delivery import Delivered, DeliveryEnded, RingStarted
from console.gui.asking import Question
from console.gui.models import page as page_module
from console.gui.models.delivering import DeliverDialog
from console.gui.models.page import ModelsPage
from console.gui.page import Desk, Page
from console.planner.types import Plan
from console.planner.types import PlannedStage as Stage
from tests.support.shown_fleet import device_id, make_pipeline, make_status
from tests.unit.console.gui.models.test_texts import make_build

Show = Callable[[Page], Page]


def make_library(name: str = "qwen3-4b", **fields: Any) -> wire.Library:
    values: dict[str, Any] = {
        "digest": name.ljust(64, "0"), "model_id": name, "folder": f"/srv/{name}", "added_s": 1.0, "layer_count": 36,
        "size_bytes": 2_500_000_000, "context_tokens": 32_768, "family": "qwen3", "layer_mode": "int4_gptq",
        "bits_per_weight": 5.01, "top1_agreement": 0.9, "mean_kl": 0.05,
    }  # fmt: skip
    return wire.Library(**(values | fields))


class Asked:
    """Every call the page makes, answered by the test."""

    def __init__(self, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[tuple[str, str, tuple[Any, ...]]] = []
        self._job = desk.bridge.begin(_nothing)
        monkeypatch.setattr(desk.bridge, "ask", self._ask)
        monkeypatch.setattr(desk.bridge, "follow", self._ask)

    def last(self, part: str) -> tuple[Any, ...]:
        """The callbacks of the last call whose path has `part`."""
        return next(callbacks for method, path, callbacks in reversed(self.calls) if part in f"{method} {path}")

    def _ask(self, call: Call[Any] | LineCall[Any], *callbacks: Any) -> Any:
        self.calls.append((call.method, call.path, callbacks))
        return self._job


async def _nothing(_: object) -> None:
    """Do nothing."""


@pytest.fixture
def asked(quiet_desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Asked:
    monkeypatch.setattr(page_module, "Feed", type(quiet_desk.status))
    return Asked(quiet_desk, monkeypatch)


@pytest.fixture
def page(quiet_desk: Desk, asked: Asked, shown: Show) -> ModelsPage:
    made = ModelsPage(quiet_desk)
    shown(made)
    tell(made, [make_library(), make_library("small", role="draft"), make_library("bad", problem="It is torn.")])
    return made


def tell(page: ModelsPage, libraries: list[wire.Library], *pipelines: wire.PipelineView) -> None:
    page.desk.libraries.latest = libraries
    page.desk.libraries.came.emit(libraries)
    page.desk.status.latest = make_status(list(pipelines))
    page.desk.status.came.emit(page.desk.status.latest)


def click(button: QAbstractButton) -> None:
    assert button.isEnabled()
    button.click()


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


def test_a_model_that_was_built_a_moment_ago_can_be_deployed(page: ModelsPage, asked: Asked, qtbot: QtBot) -> None:
    dialog = page.open_deploy("fresh")
    assert dialog.form.model.currentData() is None, "no other model takes its place"
    assert not dialog.go.isEnabled()
    assert "fresh is not among the models yet" in dialog.preview.said.text()
    assert not any(path.endswith("/plans") for _, path, _ in asked.calls)
    dialog.form.streams.setValue(3)
    before = len([path for _, path, _ in asked.calls if path.endswith("/plans")])
    tell(page, [make_library(), make_library("fresh"), make_library("small", role="draft")])
    assert (dialog.form.model.currentData(), dialog.form.streams.value()) == ("fresh", 3)
    assert dialog.form.draft.findData("small") >= 0
    qtbot.waitUntil(lambda: len([path for _, path, _ in asked.calls if path.endswith("/plans")]) > before)
    dialog.close()


def test_whoever_chooses_another_model_than_one_that_is_not_known_yet_keeps_it(
    page: ModelsPage, asked: Asked, qtbot: QtBot
) -> None:
    dialog = page.open_deploy("fresh")
    dialog.form.model.setCurrentIndex(0)
    qtbot.waitUntil(lambda: any(path.endswith("/plans") for _, path, _ in asked.calls))
    tell(page, [make_library(), make_library("fresh")])
    assert dialog.form.model.currentData() == "qwen3-4b"
    dialog.close()


def test_deploying_anew_keeps_what_its_form_does_not_show(page: ModelsPage, asked: Asked) -> None:
    rules = wire.PlanRules(exclude=[device_id(7)], pins=[wire.PinnedPc(device_id(1))])
    former = wire.DeployRequest(
        "qwen3-4b", context=4096, streams=3, devices=[device_id(1), device_id(2)], cache="u8", cache_mb=512,
        draft="gone-draft", recover_s=5.0, rules=rules, replicas=1, plan=[[wire.GivenStage(device_id(1), 0, 36)]],
    )  # fmt: skip
    tell(page, [make_library(), make_library("other")], make_pipeline(request=former))
    dialog = page.open_deploy("qwen3-4b")
    assert dialog.form.request() == msgspec.structs.replace(former, plan=[])
    assert "plan made by hand. That is given up" in dialog.kept.text()
    assert "asked of its PCs before stays" in dialog.kept.text()
    dialog.form.streams.setValue(5)
    asked.last("/plans")[0](Plans("qwen3-4b", [PlannedPipeline(Plan("q", 1, 1, [], 1.0, 1.0, []), [])], []))
    click(dialog.go)
    begun = page.rollouts.find("qwen3-4b")
    assert begun is not None
    assert begun.request == msgspec.structs.replace(former, plan=[], streams=5)
    asked.last("POST /admin/v1/deployments")[1](ServiceRefused("No.", status=409))
    click(dialog.again)
    dialog.form.choose("other")
    assert not dialog.form.request().devices, "another model was never asked for so"
    dialog.close()


def test_the_planner_is_asked_with_every_change_and_its_reasons_are_shown(
    page: ModelsPage, asked: Asked, qtbot: QtBot
) -> None:
    dialog = page.open_deploy("qwen3-4b")
    assert dialog.form.draft.findData("small") >= 0, "a draft model can be chosen"
    take, refuse = asked.last("/plans")
    stage = Stage(device_id(1), "pc-0001", "CPU", "paged", 0, 36, 12.0, 3_000_000_000, 1_000_000_000)
    plan = Plan("qwen3-4b", 2048, 8, [stage], 14.2, 31.0, ["It is the fastest."])
    take(Plans("qwen3-4b", [PlannedPipeline(plan, [])], []))
    cells = [dialog.preview.table.item(0, column) for column in (0, 1, 3, 4)]
    assert [cell.text() for cell in cells if cell is not None] == ["0-35", "pc-0001", "3.0 GB", "1.0 GB"]
    assert "It is the fastest." in dialog.preview.reasons.text()
    before = len(asked.calls)
    dialog.form.standbys.setValue(2)
    dialog.form.context.setValue(4096)
    qtbot.waitUntil(lambda: len(asked.calls) == before + 1)
    take, refuse = asked.last("/plans")
    take(Plans("qwen3-4b", [], [], missing="1.2 GB of memory are missing; let more PCs rest."))
    assert "1.2 GB of memory are missing" in dialog.preview.said.text()
    assert not dialog.go.isEnabled()
    refuse(ServiceRefused("No PC is connected.", status=409))
    assert dialog.preview.said.text() == "No PC is connected."
    dialog.close()


def test_a_rollout_goes_on_without_its_dialog_and_can_be_looked_at_again(page: ModelsPage, asked: Asked) -> None:
    said: list[tuple[str, bool]] = []
    page.said.connect(lambda text, failed: said.append((text, failed)))
    dialog = page.open_deploy("qwen3-4b")
    asked.last("/plans")[0](Plans("qwen3-4b", [PlannedPipeline(Plan("q", 1, 1, [], 1.0, 1.0, []), [])], []))
    click(dialog.go)
    on_line, on_end = asked.last("POST /admin/v1/deployments")
    on_line(wire.Planned([wire.PlannedStage(0, device_id(1), "pc-0001", 0, 36)], ["Why."], 1))
    assert dialog.view.bars.texts == [("Layers 0-35 on pc-0001", "waits")]
    dialog.close()
    on_line(wire.Loading(0, "pc-0001", "fetch", 1_000_000, 4_000_000))
    again = page.open_deploy("qwen3-4b")
    assert again.view.bars.texts == [("Layers 0-35 on pc-0001", "fetches 1 MB of 4 MB")]
    on_line(wire.Broken("memory", "pc-0001 has too little memory; plan fewer layers."))
    on_end(None)
    assert "It failed: pc-0001 has too little memory" in again.view.headline.text()
    assert said[-1][1], "the line at the bottom says it, too"
    click(again.again)
    assert again.go.isVisible()
    again.close()


def test_a_deployment_that_is_refused_has_ended_and_can_be_changed(page: ModelsPage, asked: Asked) -> None:
    dialog = page.open_deploy("qwen3-4b")
    for error, said in (
        (ServiceRefused("qwen3-4b is being deployed already.", status=409), "It failed: qwen3-4b is being deployed"),
        (ServiceUnreachable("It is away."), "It is away. Whether it was begun"),
    ):
        asked.last("/plans")[0](Plans("qwen3-4b", [PlannedPipeline(Plan("q", 1, 1, [], 1.0, 1.0, []), [])], []))
        click(dialog.go)
        asked.last("POST /admin/v1/deployments")[1](error)
        assert said in dialog.view.headline.text()
        assert "itself goes on" not in dialog.view.headline.text()
        assert not dialog.hint.isVisible()
        click(dialog.again)
    dialog.close()


def test_a_delivery_that_is_refused_has_ended_and_can_be_asked_for_again(page: ModelsPage, asked: Asked) -> None:
    dialog = page.open_delivery("qwen3-4b")
    click(dialog.start)
    asked.last("POST /admin/v1/deliveries")[1](ServiceRefused("Other layers are being delivered.", status=409))
    assert dialog.headline.text() == "Other layers are being delivered."
    assert not dialog.stop.isVisible()
    click(dialog.start)
    dialog.close()


def test_a_build_that_ended_or_is_not_known_is_not_said_to_go_on(page: ModelsPage, asked: Asked) -> None:
    view = page.open_build("b1").run
    away, unknown = ServiceUnreachable("It is away."), ServiceRefused("There is no build b1.", status=404)
    view._fail(away)
    assert view.message.text() == "It is away."
    for state, error, goes_on in (
        ("running", away, True), ("running", unknown, False), ("failed", away, False), ("built", away, False),
    ):  # fmt: skip
        view._show(BuildDetail(make_build(state=state), []))
        view._fail(error)
        assert view.message.text() == str(error) + (" The build itself goes on." if goes_on else "")


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


def test_a_half_delivered_library_says_who_lacks_it_and_what_to_do(page: ModelsPage, asked: Asked) -> None:
    page.select("qwen3-4b")
    click(page.view.bring)
    (dialog,) = page.findChildren(DeliverDialog)
    dialog.start.click()
    on_line, on_end = asked.last("POST /admin/v1/deliveries")
    on_line(RingStarted(1, 1, 2))
    on_line(Delivered(device_id(1), "pc-0001 left in the middle; switch it on."))
    cell = dialog.problems.item(0, 1)
    assert cell is not None
    assert cell.text() == "pc-0001 left in the middle; switch it on."
    dialog.stop.click()
    asked.last("DELETE /admin/v1/deliveries/qwen3-4b")[0](None)
    on_line(DeliveryEnded(0, 1, "It was ended by an administrator."))
    on_end(None)
    assert "Deliver again to go on" in dialog.headline.text()
    dialog.close()


def test_a_running_delivery_is_followed_from_the_list(page: ModelsPage, asked: Asked) -> None:
    page.deliveries.came.emit([wire.DeliveryView("qwen3-4b", 0, 36, 10, 3, 1, 1.0)])
    assert page.deliveries_table.isVisible()
    page.deliveries_table.choose("qwen3-4b")
    page.deliveries_table.activated.emit(page.delivery_model.index(0, 0))
    asked.last("GET /admin/v1/deliveries/qwen3-4b")
    assert not any(method == "POST" for method, _, _ in asked.calls), "to look begins nothing"
    assert not page.followed.find("qwen3-4b").end  # type: ignore[union-attr]  # it was asked for
    page.deliveries_table.activated.emit(page.delivery_model.index(0, 0))
    assert [path for _, path, _ in asked.calls if "deliveries/" in path] == ["/admin/v1/deliveries/qwen3-4b"]


def test_every_button_and_field_has_a_name_to_be_read_out(page: ModelsPage, asked: Asked) -> None:
    page.select("qwen3-4b")
    windows = [page, page.open_deploy("qwen3-4b"), page.open_wizard()]
    for window in windows:
        for button in window.findChildren(QAbstractButton):
            assert button.text() or button.accessibleName() or not button.isVisible() or _is_inner(button)
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
