"""Memory follows the largest layer: a real build of one like a large model's, watched from outside."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.bench.export import Shape, build_random

if TYPE_CHECKING:
    from pathlib import Path

# As wide as models of 70 billion parameters; a layer of 400 million weights is 0.8 GB in sixteen bits.
LARGE = Shape(width=8192, inner=10240, heads=64, kv_heads=8, vocabulary=4096, layers=2)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("options", [(), ("--layers", "int8_asym")], ids=["default", "int8_asym"])
def test_a_build_takes_three_times_its_largest_layer_and_no_more(options: tuple[str, ...], tmp_path: Path) -> None:
    assert LARGE.layer_weights > 400e6
    found = build_random(LARGE, tmp_path, options, print)
    assert found["layers"] == 2
    assert found["peak_rss_mb"] <= found["allowed_rss_mb"]
    assert found["peak_rss_mb"] <= found["estimated_rss_mb"]
