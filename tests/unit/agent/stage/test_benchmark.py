"""A real layer is measured by every engine of a device, with the ends that are there, unless the owner is back."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from agent.stage.benchmark import measure, stacked
from agent.stage.errors import Yielded
from agent.stage.gate import Gate
from agent.stage.speeds import MeasureSpec
from tests.support.stage import make_spec
from tests.support.toy_library import toy_library


def test_each_engine_is_measured_with_the_ends_that_are_here(tmp_path: Path) -> None:
    toy_library(tmp_path, layers=3)
    spec = make_spec(tmp_path, first=1, last=2)
    both = measure(MeasureSpec(spec, ["paged", "stateful"], 2, embed=True, head=True), Gate.private())
    assert [speed.engine for speed in both.speeds] == ["paged", "stateful"]
    assert all(speed.layer_ms > 0 and speed.embed_ms is not None and speed.head_ms is not None for speed in both.speeds)
    assert both.tested == {"paged": [0], "stateful": [0]}
    inner = measure(MeasureSpec(spec, ["paged"], 2), Gate.private())
    assert [(speed.embed_ms, speed.head_ms) for speed in inner.speeds] == [(None, None)]


def test_a_device_that_cannot_run_the_layer_says_why(tmp_path: Path) -> None:
    toy_library(tmp_path, layers=3)
    spec = make_spec(tmp_path, first=1, last=2, device="GPU.9")
    found = measure(MeasureSpec(spec, ["stateful"], 2), Gate.private())
    assert found.speeds == []
    assert "GPU.9" in found.refused["stateful"]


def test_an_engine_that_computes_wrongly_is_no_measure_of_this_pc(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toy_library(tmp_path, layers=3)
    monkeypatch.setattr("agent.stage.engines.selftest._largest_error", lambda *_: 0.5)
    found = measure(MeasureSpec(make_spec(tmp_path, first=1, last=2), ["paged"], 2), Gate.private())
    assert (found.speeds, found.tested) == ([], {})
    assert "off by 50.0%" in found.refused["paged"]


def test_nothing_is_computed_once_the_gate_is_shut(tmp_path: Path) -> None:
    toy_library(tmp_path, layers=3)
    gate = Gate.private()
    gate.shut()
    with pytest.raises(Yielded):
        measure(MeasureSpec(make_spec(tmp_path, first=1, last=2), ["paged"], 2), gate)
    assert gate.entered == 0


def test_a_stack_is_one_unit_many_times_and_needs_no_other_layer(tmp_path: Path) -> None:
    manifest = toy_library(tmp_path, layers=5)
    stack = stacked(manifest, 3, 4)
    assert stack.layer_count == 6
    assert {stack.layer(index).bin for index in range(6)} == {manifest.layer(3).bin}
    assert stack.unit("head") == manifest.unit("head")
    assert msgspec.structs.replace(stack, layer_count=5, units=manifest.units) == manifest
