"""The tables of the page: libraries, builds, deliveries."""

from __future__ import annotations

from collections.abc import Sequence

from console.api.admin import types as wire
from console.api.admin.build_types import Build
from console.gui.models import texts
from console.gui.rows import Heading, KeyedModel, RowsView
from console.gui.times import size_text


class LibraryModel(KeyedModel[wire.Library]):
    """Libraries, and where each is deployed."""

    headings = (
        Heading("Model", 26),
        Heading("Deployed", 20),
        Heading("Size", 10, number=True),
        Heading("Layers", 8, number=True),
        Heading("Weights", 22),
        Heading("Quality", 30),
    )
    _DEPLOYED = 1

    pipelines: Sequence[wire.PipelineView] = ()

    def key_of(self, item: wire.Library) -> str:
        return item.digest

    def text(self, item: wire.Library, column: int) -> str:
        return (
            item.model_id,
            texts.served_text(item, self.pipelines),
            size_text(item.size_bytes),
            str(item.layer_count or "-"),
            texts.stored_text(item),
            texts.quality_text(item),
        )[column]

    def take_pipelines(self, pipelines: Sequence[wire.PipelineView]) -> None:
        """Show where they are deployed now."""
        before = [self.text(item, self._DEPLOYED) for item in self.shown]
        self.pipelines = pipelines
        self.tell([row for row, item in enumerate(self.shown) if self.text(item, self._DEPLOYED) != before[row]])


class BuildModel(KeyedModel[Build]):
    """Builds."""

    headings = (
        Heading("Model", 26),
        Heading("State", 20),
        Heading("Progress", 18),
        Heading("Time left", 16),
        Heading("What happened", 30),
    )

    def key_of(self, item: Build) -> str:
        return item.build_id

    def text(self, item: Build, column: int) -> str:
        return (
            item.model_id,
            texts.build_state_text(item),
            texts.build_progress_text(item),
            texts.left_text(item),
            item.message,
        )[column]


class DeliveryModel(KeyedModel[wire.DeliveryView]):
    """Deliveries under way."""

    headings = (Heading("Model", 26), Heading("Layers", 20), Heading("PCs", 18), Heading("Failed", 16))

    def key_of(self, item: wire.DeliveryView) -> str:
        return item.model

    def text(self, item: wire.DeliveryView, column: int) -> str:
        layers, pcs = f"{item.first}-{item.last - 1}", f"{item.delivered} of {item.total}"
        return (item.model, layers, pcs, str(item.failed))[column]


def fit_rows(view: RowsView, most: int) -> None:
    """Make a table as high as its rows, up to so many of them."""
    rows = min(most, max(1, view.model().rowCount()))
    header = view.horizontalHeader().sizeHint().height()
    view.setFixedHeight(view.verticalHeader().defaultSectionSize() * rows + header + 2 * view.frameWidth())
