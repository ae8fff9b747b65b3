"""The page of the models with what a service would say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from PySide6.QtWidgets import QAbstractButton

from console.api.admin import types as wire
from console.call import Call, LineCall
from console.gui.models import page as page_module
from console.gui.models.page import ModelsPage
from console.gui.page import Desk, Page
from tests.support.shown_fleet import make_status

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
