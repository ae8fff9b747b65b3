"""Whatever a console asks for, every engine says what a run of the stream's final tokens alone would say.

Streams grow, lose rejected tokens, share beginnings and end in any order. The reference is the bare stateful graph,
run from an empty state: a trimmed cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.stage.engines import Engine, load, stateful
from agent.stage.engines.options import EXACT
from agent.stage.engines.packed import PackedEngine
from agent.stage.engines.paged import PagedEngine
from agent.stage.types import Row, Share, StreamId
from shard_export.library.graph import assemble
from shard_export.library.store import load_manifest
from tests.support.stage import make_row, make_spec
from tests.support.toy_library import VOCAB, toy_library

CONTEXT, STREAMS = 96, 3
Alone = Callable[[list[int]], Any]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("toy")
    toy_library(folder, windows=[0, 6, 0])
    return folder


@pytest.fixture(scope="module", params=["paged", "stateful", "packed"])
def engine(request: pytest.FixtureRequest, library: Path) -> Iterator[Engine]:
    with pytest.MonkeyPatch.context() as patch:
        # Compaction is rare by design; here it must happen all the time.
        patch.setattr(stateful, "MIN_HOLES", 4)
        loaded = load(make_spec(library, engine=request.param, context_tokens=CONTEXT, streams=STREAMS))
        yield loaded
        loaded.close()


@pytest.fixture(scope="module")
def alone(library: Path) -> Alone:
    """The logits after the last of some tokens, by a graph that has seen nothing else."""
    request = (
        ov.Core().compile_model(assemble(library, load_manifest(library), 0, 3), "CPU", EXACT).create_infer_request()
    )

    def run(tokens: list[int]) -> Any:
        request.reset_state()
        count = len(tokens)
        feed = {"input_ids": np.array([tokens]), "attention_mask": np.ones((1, count), np.int64),
                "position_ids": np.arange(count)[None], "beam_idx": np.zeros(1, np.int32)}  # fmt: skip
        return request.infer(feed)[0][0, -1].copy()

    return run


class Play:
    """What a console knows of the streams: their tokens."""

    def __init__(self, data: st.DataObject, engine: Engine) -> None:
        self.data, self.engine = data, engine
        self.said: dict[int, list[int]] = {}

    def step(self) -> list[tuple[int, Any]]:
        """One step of shares, releases and rows; returns the last logits of every row's stream."""
        shares, release = self.shares(), self.releases()
        rows, tokens = [], []
        for stream in self.data.draw(st.lists(st.integers(0, STREAMS - 1), min_size=1, max_size=STREAMS, unique=True)):
            row, ids = self.row(stream)
            rows.append(row)
            tokens += ids
        logits = self.engine.step(rows, np.array(tokens), shares=shares, release=release).copy()
        return [(int(row.stream), logits[at]) for at, row in enumerate(rows)]

    def shares(self) -> list[Share]:
        new = [stream for stream in range(STREAMS) if stream not in self.said]
        if not self.said or not new or not self.data.draw(st.booleans()):
            return []
        stream, source = self.data.draw(st.sampled_from(new)), self.data.draw(st.sampled_from(sorted(self.said)))
        tokens = self.data.draw(st.integers(1, len(self.said[source])))
        self.said[stream] = self.said[source][:tokens]
        return [Share(StreamId(stream), StreamId(source), tokens)]

    def releases(self) -> list[StreamId]:
        if not self.said or self.data.draw(st.integers(0, 3)):
            return []
        stream = self.data.draw(st.sampled_from(sorted(self.said)))
        del self.said[stream]
        return [StreamId(stream)]

    def row(self, stream: int) -> tuple[Row, list[int]]:
        said = self.said.get(stream, [])
        first = self.data.draw(st.integers(max(0, len(said) - 12), min(len(said), CONTEXT - 1)))
        ids = self.data.draw(st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=min(40, CONTEXT - first)))
        self.said[stream] = said[:first] + ids
        return make_row(stream, first, len(ids), truncate_to=first), ids


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), steps=st.integers(2, 8))
def test_an_engine_says_what_a_run_alone_says(engine: Engine, alone: Alone, data: st.DataObject, steps: int) -> None:
    check(engine, alone, data, steps)


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), steps=st.integers(2, 30))
def test_an_engine_says_what_a_run_alone_says_for_long(
    engine: Engine, alone: Alone, data: st.DataObject, steps: int
) -> None:
    check(engine, alone, data, steps)


def check(engine: Engine, alone: Alone, data: st.DataObject, steps: int) -> None:
    try:
        play = Play(data, engine)
        for _ in range(steps):
            for stream, logits in play.step():
                np.testing.assert_allclose(logits, alone(play.said[stream]), atol=1e-4)
    finally:
        engine.step([], None, release=[StreamId(stream) for stream in range(STREAMS)])
    if isinstance(engine, PagedEngine):
        assert engine._pool.free_tokens == engine.kv_tokens
    elif isinstance(engine, PackedEngine):
        assert engine._pool.free_columns == engine.kv_tokens
