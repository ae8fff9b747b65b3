"""The dialogs of the models' page: what is asked for, refused, lost and followed."""

from __future__ import annotations

import msgspec
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from pytestqt.qtbot import QtBot

from console.api.admin import types as wire
from console.api.admin.build_types import BuildDetail
from console.api.admin.plan_types import PlannedPipeline, Plans
from console.errors import ServiceRefused, ServiceUnreachable
from console.fleet.delivery import Delivered, DeliveryEnded, RingStarted
from console.gui.models.browsing import FolderView
from console.gui.models.delivering import DeliverDialog
from console.gui.models.page import ModelsPage
from console.gui.models.parts import Dialog, button
from console.planner.types import Plan
from console.planner.types import PlannedStage as Stage
from tests.support.shown_fleet import device_id, make_pipeline
from tests.unit.console.gui.models.conftest import Asked, click, make_library, tell
from tests.unit.console.gui.models.test_texts import make_build


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


def test_no_model_is_chosen_by_being_the_first_that_is_heard_of(page: ModelsPage, asked: Asked) -> None:
    tell(page, [])
    dialog = page.open_deploy("fresh")
    tell(page, [make_library()])
    assert dialog.form.model.currentData() is None
    assert not dialog.go.isEnabled()
    tell(page, [make_library(), make_library("fresh")])
    assert dialog.form.model.currentData() == "fresh"
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
        assert dialog.again.isVisible()
        click(dialog.again)
    dialog.close()


def test_a_delivery_that_is_refused_has_ended_and_can_be_asked_for_again(page: ModelsPage, asked: Asked) -> None:
    dialog = page.open_delivery("qwen3-4b")
    click(dialog.start)
    asked.last("POST /admin/v1/deliveries")[1](ServiceRefused("Other layers are being delivered.", status=409))
    assert dialog.headline.text() == "Other layers are being delivered."
    assert not dialog.stop.isVisible()
    assert dialog.start.isVisible()
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


def test_enter_in_a_path_is_not_for_the_button_of_the_dialog(page: ModelsPage, asked: Asked) -> None:
    dialog = Dialog(page, "Choose", columns=60, lines=20)
    pick = FolderView(page.desk.bridge, frozenset({"library"}))
    pressed: list[str] = []
    choose = button("Choose", lambda: pressed.append("button"))
    choose.setDefault(True)
    dialog.rows.addWidget(pick)
    dialog.rows.addWidget(choose)
    dialog.show()
    pick.path.setText("/srv/models")
    for key in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
        QTest.keyClick(pick.path, key)
    assert [path for _, path, _ in asked.calls if "/folders" in path] == [asked.calls[-1][1]] * 2
    assert pressed == []
    dialog.close()
