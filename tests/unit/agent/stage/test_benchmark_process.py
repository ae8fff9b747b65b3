"""A process that measures a layer is seen to its end, whatever it does."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.stage.benchmark_process import NotMeasured, measure_in_child
from agent.stage.speeds import MeasureSpec
from tests.support.stage import make_spec
from tests.support.toy_library import toy_library


async def test_a_process_measures_a_layer_and_is_ended_when_it_must(tmp_path: Path) -> None:
    toy_library(tmp_path)
    spec = MeasureSpec(make_spec(tmp_path, first=1, last=2), ["paged"], 2)
    found = await measure_in_child(spec, lambda: False)
    assert [speed.engine for speed in found.speeds] == ["paged"]
    with pytest.raises(NotMeasured, match="something else") as stopped:
        await measure_in_child(spec, lambda: True)
    assert stopped.value.again
    with pytest.raises(NotMeasured, match="more than 0 s") as late:
        await measure_in_child(spec, lambda: False, 0.0)
    assert not late.value.again


async def test_a_process_that_fails_says_its_code(tmp_path: Path) -> None:
    gone = make_spec(tmp_path, gate=str(tmp_path / "no.gate"))
    with pytest.raises(NotMeasured, match="code 2"):
        await measure_in_child(MeasureSpec(gone, ["paged"], 2), lambda: False)
