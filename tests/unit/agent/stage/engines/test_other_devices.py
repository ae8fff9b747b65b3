"""What happens on a GPU and an NPU, as far as a runtime that pretends to have them can show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agent.devices import find_devices
from agent.stage.engines import load_selected
from agent.stage.errors import StageLoadError
from agent.stage.types import EngineChoice
from tests.support.pretend_devices import PretendCore
from tests.support.stage import generate, make_spec
from tests.support.toy_library import VOCAB, toy_library


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("toy")
    toy_library(folder, windows=[0, 6, 0])
    return folder


@pytest.fixture(autouse=True)
def devices(monkeypatch: pytest.MonkeyPatch) -> type[PretendCore]:
    monkeypatch.setattr("openvino.Core", PretendCore)
    monkeypatch.setattr(PretendCore, "compiled", [])
    monkeypatch.setattr(PretendCore, "refuses", {})
    return PretendCore


def answers(library: Path, **fields: Any) -> tuple[list[list[int]], str]:
    prompts = [np.random.default_rng(seed).integers(0, VOCAB, 5 + 7 * seed) for seed in range(4)]
    engine, selection = load_selected(make_spec(library, **{"engine": "auto", **fields}))
    try:
        return generate([engine], prompts, 8, batch=4), selection.engine
    finally:
        engine.close()


def test_each_device_offers_its_engines() -> None:
    found = {device.name: device.engines for device in find_devices()}
    assert found == {"CPU": ["paged", "stateful"], "GPU": ["stateful", "paged"], "NPU": ["packed"]}


@pytest.fixture(scope="module")
def wanted(library: Path) -> list[list[int]]:
    """What the CPU says."""
    return answers(library, engine="paged")[0]


@pytest.mark.parametrize("choice", ["auto", "paged"])
def test_a_gpu_says_what_a_cpu_says(
    library: Path, wanted: list[list[int]], devices: type[PretendCore], choice: EngineChoice
) -> None:
    found, used = answers(library, device="GPU.0", engine=choice)
    assert (found, used) == (wanted, "stateful" if choice == "auto" else choice)
    assert "GPU.0" in devices.compiled


def test_an_npu_runs_static_graphs(library: Path) -> None:
    found, used = answers(library, device="NPU", numerics="fast", cache="f32")
    assert used == "packed"
    assert [len(answer) for answer in found] == [8] * 4


def test_a_gpu_that_forgets_with_states_is_run_in_pages(
    library: Path, wanted: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def truncate(self: Any, length: int) -> None:
        self.length = length

    monkeypatch.setattr("agent.stage.engines.stateful._Stream.truncate", truncate)
    assert answers(library, device="GPU") == (wanted, "paged")


def test_a_device_whose_engines_all_compute_wrongly_is_refused(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.stage.engines.places._fill_new", lambda mask, _: mask.fill(0))
    with pytest.raises(StageLoadError, match=r"No engine can run these layers on NPU: packed: Layer \d is off by"):
        answers(library, device="NPU", numerics="fast")


def test_a_driver_that_refuses_the_graph_is_named_with_its_words(library: Path, devices: type[PretendCore]) -> None:
    devices.refuses["GPU"] = "Exception from src/plugins\n[GPU] out of resources"
    with pytest.raises(StageLoadError, match=r"stateful: .*\[GPU\] out of resources.* paged: ") as caught:
        answers(library, device="GPU")
    assert caught.value.code == "load"
