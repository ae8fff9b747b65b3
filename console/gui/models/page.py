"""The page of the models: libraries, builds and deliveries at the left, the library that is selected at the right."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QSplitter, QVBoxLayout, QWidget

from agent.look.widgets import heading, label
from console import calls
from console.api.admin import types as wire
from console.api.admin.build_types import Builds
from console.call import Call
from console.gui.asking import Orders, Question
from console.gui.feed import Feed
from console.gui.models.adding import AddDialog
from console.gui.models.delivering import DeliverDialog
from console.gui.models.deploying import DeployDialog
from console.gui.models.follow import Deliveries, Rollouts
from console.gui.models.parts import across, button, say
from console.gui.models.served import LibraryView
from console.gui.models.tables import BuildModel, DeliveryModel, LibraryModel, fit_rows
from console.gui.models.wizard import BuildWizard
from console.gui.page import Desk, Page
from console.gui.rows import RowsView
from console.gui.states import States
from shard_export.library.counts import counted

BUILDS_S, DELIVERIES_S = 2.0, 5.0
MOST_ROWS = 5
"""Builds and deliveries in sight without scrolling."""
SHARE = 1000
EMPTY = "There is no layer library yet. Build one from a model, or add a folder that holds one."


class ModelsPage(Page):
    """Rows keep their place while they change; dialogs may be closed while what they began goes on."""

    name = "models"
    heading = "Models"
    icon = "models"

    def __init__(self, desk: Desk) -> None:
        self.builds = Feed(desk.bridge, calls.builds(), BUILDS_S)
        self.deliveries = Feed(desk.bridge, calls.deliveries(), DELIVERIES_S)
        super().__init__(desk, desk.libraries, desk.status, self.builds, self.deliveries)
        self.rollouts = Rollouts(desk.bridge, self)
        self.rollouts.ended.connect(self._rolled_out)
        self.followed = Deliveries(desk.bridge, self)
        self.orders = Orders(desk.bridge, self)
        self.orders.said.connect(self.said)
        self._make_tables()
        self.view = LibraryView(desk)
        self.view.hide()
        self.missing = label()
        self.missing.setObjectName("missing")
        self.missing.hide()
        self.build = button("&Build a library…", self.open_wizard)
        self.add = button("&Add a folder…", self._open_add)
        self.build.setEnabled(desk.may("operate"))
        self.add.setEnabled(desk.may("operate"))
        self._lay_out()
        self._connect()

    def select(self, what: str) -> None:
        """Select a model by its id, or open a build by its own."""
        library = next((one for one in self.desk.libraries.latest or [] if one.model_id == what), None)
        if library is not None:
            self.libraries.choose(library.digest)
        elif self.builds_table.choose(what):
            self.open_build(what)

    def open_wizard(self) -> BuildWizard:
        """Open the build wizard."""
        wizard = BuildWizard(self.desk, self)
        self._connect_wizard(wizard)
        wizard.show()
        return wizard

    def open_build(self, build_id: str) -> BuildWizard:
        """Open a build that is there."""
        wizard = BuildWizard(self.desk, self, build_id)
        self._connect_wizard(wizard)
        wizard.show()
        return wizard

    def open_deploy(self, model: str) -> DeployDialog:
        """Open the deploy dialog on a model."""
        dialog = DeployDialog(self.desk, self.rollouts, self)
        former = next((one.request for one in self._pipelines() if one.model == model), None)
        dialog.begin_with(model, former)
        dialog.show()
        return dialog

    def open_delivery(self, model: str, *, follow: bool = False) -> DeliverDialog:
        """Open the dialog of a model's delivery; `follow`: one is under way."""
        dialog = DeliverDialog(self.desk, self.followed, model, self)
        dialog.said.connect(self.said)
        if follow:
            dialog.follow_running()
        dialog.show()
        return dialog

    def _connect_wizard(self, wizard: BuildWizard) -> None:
        wizard.said.connect(self.said)
        wizard.begun.connect(self.builds.now)
        wizard.deploy.connect(self.open_deploy)

    def _make_tables(self) -> None:
        self.library_model = LibraryModel(self)
        self.build_model = BuildModel(self)
        self.delivery_model = DeliveryModel(self)
        self.libraries, self.builds_table, self.deliveries_table = (
            RowsView(name, model, several=False)
            for name, model in (
                ("Libraries", self.library_model),
                ("Builds", self.build_model),
                ("Deliveries", self.delivery_model),
            )
        )

    def _lay_out(self) -> None:
        left = QWidget()
        rows = QVBoxLayout(left)
        rows.setContentsMargins(0, 0, 0, 0)
        self.states = States(self.libraries)
        self.states.follow(self.desk.libraries)
        rows.addWidget(self.states, 1)
        self.headings = [heading("Builds"), heading("Deliveries under way")]
        for named, table in zip(self.headings, (self.builds_table, self.deliveries_table), strict=True):
            rows.addWidget(named)
            rows.addWidget(table)
            named.hide()
            table.hide()
        split = QSplitter(Qt.Orientation.Horizontal)
        split.setChildrenCollapsible(False)
        split.addWidget(left)
        split.addWidget(self.view)
        split.setSizes([3 * SHARE, 2 * SHARE])
        self.rows.addLayout(across(self.build, self.add))
        self.rows.addWidget(self.missing)
        self.rows.addWidget(split, 1)

    def _connect(self) -> None:
        self.desk.libraries.came.connect(self._show)
        self.desk.status.came.connect(self._show)
        self.builds.came.connect(self._take_builds)
        self.deliveries.came.connect(self._take_deliveries)
        self.libraries.selectionModel().selectionChanged.connect(self._choose)
        self.builds_table.activated.connect(lambda _: self._open_chosen_build())
        self.deliveries_table.activated.connect(lambda _: self._open_chosen_delivery())
        self.view.wants.connect(self.wants)
        self.view.said.connect(self.said)
        self.view.deploy.connect(lambda: self._with_chosen(lambda one: self.open_deploy(one.model_id)))
        self.view.deliver.connect(lambda: self._with_chosen(lambda one: self.open_delivery(one.model_id)))
        self.view.undeploy.connect(lambda: self._with_chosen(self._ask_undeploy))
        self.view.remove.connect(lambda: self._with_chosen(self._ask_remove))

    def _pipelines(self) -> list[wire.PipelineView]:
        status: wire.Status | None = self.desk.status.latest
        return [] if status is None else status.pipelines

    def _show(self) -> None:
        libraries: list[wire.Library] | None = self.desk.libraries.latest
        if libraries is None:
            return
        self.library_model.take(libraries)
        self.library_model.take_pipelines(self._pipelines())
        if libraries:
            self.states.show_content()
        else:
            self.states.show_empty(EMPTY)
        self._choose()

    def _choose(self, *_: object) -> None:
        chosen = self._chosen_library()
        self.view.setVisible(chosen is not None)
        if chosen is not None:
            self.view.show_library(chosen, self._pipelines())

    def _take_builds(self, found: Builds) -> None:
        shown = [build for build in found.builds if not (build.state == "cancelled" or build.published)]
        before = {build.build_id for build in self.build_model.items}
        if before - {build.build_id for build in shown}:
            self.desk.libraries.now()  # one was published, perhaps
        self.build_model.take(shown)
        self._set_visible(0, self.builds_table, bool(shown))
        going = sum(build.goes_on for build in shown)
        self.badge.emit(str(going) if going else "")
        say(self.missing, found.missing, bad=True)
        self.build.setEnabled(self.desk.may("operate") and not found.missing)

    def _take_deliveries(self, found: list[wire.DeliveryView]) -> None:
        self.delivery_model.take(found)
        self._set_visible(1, self.deliveries_table, bool(found))

    def _set_visible(self, place: int, table: RowsView, visible: bool) -> None:
        self.headings[place].setVisible(visible)
        table.setVisible(visible)
        fit_rows(table, MOST_ROWS)

    def _open_chosen_build(self) -> None:
        for build_id in self.builds_table.chosen():
            self.open_build(build_id)

    def _open_chosen_delivery(self) -> None:
        for model in self.deliveries_table.chosen():
            self.open_delivery(model, follow=True)

    def _open_add(self) -> None:
        dialog = AddDialog(self.desk, self)
        dialog.said.connect(self.said)
        dialog.show()

    def _with_chosen(self, do: Callable[[wire.Library], object]) -> None:
        if (chosen := self._chosen_library()) is not None:
            do(chosen)

    def _chosen_library(self) -> wire.Library | None:
        return next((self.library_model.find(digest) for digest in self.libraries.chosen()), None)

    def _ask_undeploy(self, library: wire.Library) -> None:
        running = sum(one.running + one.queued for one in self._pipelines() if one.model == library.model_id)
        ended = counted(running, "answer that runs or waits ends", "answers that run or wait end")
        text = f"Its PCs give the memory back at once. {ended} with an error."
        question = Question(self, f"Take {library.model_id} down", text, "Take down")
        question.answered.connect(
            lambda *_: self._order(library, calls.undeploy(library.model_id), "is not served any more.")
        )
        question.open()

    def _ask_remove(self, library: wire.Library) -> None:
        text = f"It is taken off this list. Its files stay in {library.folder}, and the folder can be added again."
        question = Question(self, f"Remove {library.model_id}", text, "Remove from the list")
        question.answered.connect(
            lambda *_: self._order(library, calls.remove_library(library.digest), "is not on the list any more.")
        )
        question.open()

    def _order(self, library: wire.Library, call: Call[None], done: str) -> None:
        self.orders.carry_out([(library.model_id, call)], f"{library.model_id} {done}", self.refresh)

    def _rolled_out(self, text: str, failed: bool) -> None:
        self.said.emit(text, failed)
        self.desk.status.now()
