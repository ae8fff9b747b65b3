"""Static graphs: rings, idle places, and cache types of the packed engine."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agent.stage.engines import Engine, load
from agent.stage.errors import BadStep, EngineFailed, StageLoadError
from tests.support.stage import make_row, make_spec
from tests.support.toy_library import HIDDEN, VOCAB, toy_library


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("toy")
    toy_library(folder, windows=[0, 6, 0])
    return folder


def packed(library: Path, **fields: Any) -> Engine:
    return load(make_spec(library, engine="packed", **{"context_tokens": 400, "streams": 2, **fields}))


def ids(count: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(0, VOCAB, count)


def in_chunks(engine: Engine, tokens: Any, size: int, *, stream: int = 1) -> Any:
    """Logits of every position, `size` tokens a step."""
    parts = []
    for at in range(0, len(tokens), size):
        part = tokens[at : at + size]
        parts.append(engine.step([make_row(stream, at, len(part), wants=len(part))], part).copy())
    return np.concatenate(parts)


def test_a_ring_changes_nothing_until_it_is_full(library: Path) -> None:
    whole, ring = packed(library), packed(library, window_tokens=70)
    tokens = ids(200)
    wanted, found = in_chunks(whole, tokens, 200), in_chunks(ring, tokens, 200)
    np.testing.assert_allclose(found[:70], wanted[:70], atol=1e-4)
    assert np.abs(found[70:] - wanted[70:]).max() > 1e-2
    assert ring.kv_bytes < whole.kv_bytes


def test_what_a_full_ring_says_depends_on_neither_chunks_nor_drafts(library: Path) -> None:
    ring = packed(library, window_tokens=70)
    tokens = ids(300)
    wanted = in_chunks(ring, tokens, 300, stream=1)
    np.testing.assert_allclose(in_chunks(ring, tokens, 23, stream=2), wanted, atol=1e-4)
    ring.release(make_row(1).stream)
    in_chunks(ring, tokens[:250], 250, stream=3)
    for at in range(250, 290, 2):
        draft = np.concatenate([tokens[at : at + 2], ids(3, seed=at)])
        got = ring.step([make_row(3, at, 5, truncate_to=at, wants=5)], draft)
        np.testing.assert_allclose(got[:2], wanted[at : at + 2], atol=1e-4)


def test_a_ring_refuses_to_go_back_to_what_it_lost_and_changes_nothing(library: Path) -> None:
    ring = packed(library, window_tokens=70)
    tokens = ids(300)
    wanted = in_chunks(ring, tokens, 300, stream=2)
    in_chunks(ring, tokens[:299], 299)
    with pytest.raises(BadStep, match="run it from its beginning"):
        ring.step([make_row(1, 20, 1, truncate_to=20)], ids(1))
    np.testing.assert_allclose(ring.step([make_row(1, 299, 1)], tokens[299:]), wanted[299:], atol=1e-4)


def test_a_lone_token_is_not_poisoned_by_idle_places(library: Path) -> None:
    engine = packed(library, streams=16)
    assert np.isfinite(engine.step([make_row()], ids(1))).all()


@pytest.mark.parametrize("poison", [np.nan, 3e38])
def test_what_is_no_number_stays_with_its_stream(library: Path, poison: float) -> None:
    engine = packed(library, first=1, last=2)
    states = np.random.default_rng(0).standard_normal((20, HIDDEN), np.float32)
    wanted = engine.step([make_row(1, 0, 20)], states).copy()
    engine.step([make_row(2, 0, 15)], states[:15])
    bad = np.full((3, HIDDEN), poison, np.float32)
    with contextlib.suppress(EngineFailed):
        engine.step([make_row(3, 0, 3)], bad)
    np.testing.assert_allclose(engine.step([make_row(2, 15, 5)], states[15:]), wanted[15:], atol=1e-4)


def test_half_precision_computes_about_the_same(library: Path) -> None:
    wanted = in_chunks(packed(library), ids(50), 50)
    engine = packed(library, numerics="fast")
    assert engine.cache == "f16"
    found = in_chunks(engine, ids(50), 50)
    assert np.linalg.norm(found - wanted) < 0.02 * np.linalg.norm(wanted)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"window_tokens": 40}, "too short; give it at least 64"),
        ({"numerics": "fast", "cache": "u8"}, "keeps no u8 cache"),
        ({"device": "NPU"}, "cannot be exact"),
    ],
)
def test_what_a_static_graph_cannot_do_is_refused(library: Path, fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(StageLoadError, match=sentence) as caught:
        packed(library, **fields)
    assert caught.value.code == "mismatch"
