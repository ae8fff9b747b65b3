"""The cache's element type follows numerics and wish, its size a memory budget or the streams."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agent.stage.engines import Engine, load, load_selected
from agent.stage.errors import StageLoadError
from agent.stage.types import Share, StreamId
from tests.support.stage import make_row, make_spec
from tests.support.toy_library import VOCAB, toy_library

ENGINES = ["paged", "stateful"]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("toy")
    toy_library(folder)
    return folder


def logits(engine: Engine) -> Any:
    tokens = np.random.default_rng(1).integers(0, VOCAB, 50)
    return engine.step([make_row(1, 0, 50, wants=50)], tokens).copy()


@pytest.fixture(scope="module")
def wanted(library: Path) -> Any:
    return logits(load(make_spec(library)))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("cache", ["u8", "half", "f32"])
def test_every_cache_computes_about_the_same_and_says_what_it_is(
    library: Path, wanted: Any, engine: str, cache: str
) -> None:
    loaded = load(make_spec(library, engine=engine, numerics="fast", cache=cache))
    assert np.linalg.norm(logits(loaded) - wanted) < 0.05 * np.linalg.norm(wanted)
    assert loaded.cache in {"u8": {"u8"}, "half": {"f16", "bf16"}, "f32": {"f32"}}[cache]


def test_a_shared_block_of_a_quantized_cache_is_copied_with_its_scales(library: Path) -> None:
    engine = load(make_spec(library, numerics="fast", cache="u8"))
    tokens = np.random.default_rng(1).integers(0, VOCAB, 50)
    engine.step([make_row(1, 0, 45)], tokens[:45])
    alone = engine.step([make_row(1, 45, 5, wants=5)], tokens[45:]).copy()
    engine.step([make_row(2, 0, 45)], tokens[:45])
    copy = engine.step([make_row(3, 45, 5, wants=5)], tokens[45:], shares=[Share(StreamId(3), StreamId(2), 45)])
    np.testing.assert_array_equal(copy, alone)


@pytest.mark.parametrize("engine", ENGINES)
def test_exact_numerics_take_no_other_cache_than_f32(library: Path, engine: str) -> None:
    with pytest.raises(StageLoadError, match="need an f32 cache, not u8") as caught:
        load(make_spec(library, engine=engine, cache="u8"))
    assert caught.value.code == "mismatch"


@pytest.mark.parametrize("engine", ENGINES)
def test_a_memory_budget_sizes_the_cache(library: Path, engine: str) -> None:
    small = load(make_spec(library, engine=engine, kv_bytes=200_000))
    large = load(make_spec(library, engine=engine, kv_bytes=2_000_000))
    assert 128 <= small.kv_tokens < 8 * 128 < large.kv_tokens
    for loaded, budget in ((small, 200_000), (large, 2_000_000)):
        assert 0.9 * budget < loaded.kv_bytes <= budget


@pytest.mark.parametrize("engine", ENGINES)
def test_a_budget_too_small_for_one_stream_is_refused(library: Path, engine: str) -> None:
    with pytest.raises(StageLoadError, match="fewer than the 128 of one stream") as caught:
        load(make_spec(library, engine=engine, kv_bytes=20_000))
    assert caught.value.code == "memory"


def test_attention_that_pages_cannot_express_falls_back_to_states(tmp_path: Path) -> None:
    toy_library(tmp_path, softcap=True)
    engine, selection = load_selected(make_spec(tmp_path))
    assert selection.engine == "stateful"
    assert "toy models" in selection.refused["paged"]
    assert np.isfinite(engine.step([make_row(count=5)], np.arange(5))).all()
