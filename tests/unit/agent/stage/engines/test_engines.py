"""Both engines keep one contract: exact rows, lengths, truncation, release, and refusals that change nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agent.stage.engines import Engine, load
from agent.stage.engines.packed import PackedEngine
from agent.stage.errors import BadStep, EngineFailed, KvFull, StageLoadError, Yielded
from agent.stage.types import Share, StreamId
from tests.support.stage import generate, make_row, make_spec
from tests.support.toy_library import HIDDEN, VOCAB, toy_library


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("toy")
    toy_library(folder, windows=[0, 6, 0])
    return folder


@pytest.fixture(scope="module", params=["paged", "stateful", "packed"])
def loaded(request: pytest.FixtureRequest, library: Path) -> Iterator[Engine]:
    engine = load(make_spec(library, engine=request.param))
    yield engine
    engine.close()


@pytest.fixture
def engine(loaded: Engine) -> Iterator[Engine]:
    yield loaded
    for stream in range(100):
        loaded.release(StreamId(stream))


def ids(count: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(0, VOCAB, count)


def prefill(engine: Engine, tokens: Any, *, stream: int = 1) -> Any:
    """Logits of every position."""
    return engine.step([make_row(stream, 0, len(tokens), wants=len(tokens))], tokens).copy()


def test_every_layer_is_fused_where_the_runtime_keeps_the_cache(engine: Engine) -> None:
    assert engine.fused == (not isinstance(engine, PackedEngine))


def test_only_wanted_positions_come_back(engine: Engine) -> None:
    whole = prefill(engine, ids(6))
    rows = [make_row(2, 0, 6, wants=2), make_row(3, 0, 6, wants=0), make_row(4, 0, 6)]
    some = engine.step(rows, np.tile(ids(6), 3))
    np.testing.assert_allclose(some, whole[[4, 5, 5]], atol=1e-4)


def test_a_chunk_that_wants_nothing_gives_no_logits(engine: Engine) -> None:
    assert engine.step([make_row(count=4, wants=0)], ids(4)).shape == (0, VOCAB)


def test_chunks_and_single_tokens_give_what_a_whole_prompt_gives(engine: Engine) -> None:
    tokens = ids(50)
    whole = prefill(engine, tokens)
    for size in (1, 7, 33):
        parts = [
            engine.step([make_row(2, at, len(tokens[at : at + size]), wants=len(tokens[at : at + size]))],
                        tokens[at : at + size]).copy()
            for at in range(0, 50, size)
        ]  # fmt: skip
        np.testing.assert_allclose(np.concatenate(parts), whole, atol=1e-4)
        engine.release(StreamId(2))


@pytest.mark.parametrize("batch", [3, 8])
def test_answers_do_not_depend_on_what_shares_the_step(engine: Engine, batch: int) -> None:
    prompts = [ids(3 + 5 * index, seed=index) for index in range(8)]
    assert generate([engine], prompts, 12, batch=batch) == generate([engine], prompts, 12, batch=1)


def test_rejected_tokens_leave_no_trace(engine: Engine) -> None:
    tokens = ids(40)
    whole = prefill(engine, tokens)
    engine.step([make_row(2, 0, 10)], tokens[:10])
    for at in range(10, 40, 2):
        draft = np.concatenate([tokens[at : at + 2], ids(3, seed=at)])
        got = engine.step([make_row(2, at, 5, truncate_to=at, wants=5)], draft)
        np.testing.assert_allclose(got[:2], whole[at : at + 2], atol=1e-4)


def test_many_rejected_tokens_are_forgotten_in_time(engine: Engine) -> None:
    tokens = ids(30)
    whole = prefill(engine, tokens)
    engine.step([make_row(2, 0, 20)], tokens[:20])
    for turn in range(12):
        engine.step([make_row(2, 20, 40, truncate_to=20)], ids(40, seed=turn))
    got = engine.step([make_row(2, 20, 10, truncate_to=20, wants=10)], tokens[20:])
    np.testing.assert_allclose(got, whole[20:], atol=1e-4)


def test_a_stream_can_start_over(engine: Engine) -> None:
    whole = prefill(engine, ids(9))
    engine.step([make_row(2, 0, 20)], ids(20, seed=5))
    got = engine.step([make_row(2, 0, 9, truncate_to=0, wants=9)], ids(9))
    np.testing.assert_allclose(got, whole, atol=1e-4)


def test_a_released_stream_starts_from_nothing(engine: Engine) -> None:
    first = prefill(engine, ids(9))
    engine.release(StreamId(1))
    assert engine.length(StreamId(1)) == 0
    np.testing.assert_array_equal(prefill(engine, ids(9)), first)


def test_forgetting_all_leaves_room_for_all_and_nothing_behind(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = generate([engine], [ids(5)], 4, batch=1)
    most = engine.kv_tokens // engine.spec.context_tokens
    for stream in range(most):
        engine.step([make_row(stream, 0, 20)], ids(20))
    with monkeypatch.context() as patch:
        # A stream whose first step failed takes room, too.
        patch.setattr(engine.gate, "enter", _refuse)
        with pytest.raises(Yielded):
            engine.step([make_row(most, 0, 5)], ids(5))
    engine.forget_all()
    assert [engine.length(StreamId(stream)) for stream in range(most)] == [0] * most
    length = engine.spec.context_tokens
    for stream in range(most):
        engine.step([make_row(stream, 0, length)], ids(length))
    engine.forget_all()
    assert generate([engine], [ids(5)], 4, batch=1) == alone


def _refuse() -> None:
    raise Yielded("The owner is back.")


def test_releasing_an_unknown_stream_is_fine(engine: Engine) -> None:
    engine.release(StreamId(99))


def test_a_row_that_does_not_continue_its_stream_is_refused(engine: Engine) -> None:
    prefill(engine, ids(5))
    with pytest.raises(BadStep, match="holds 5 tokens"):
        engine.step([make_row(1, 6, 1)], ids(1))
    assert engine.length(StreamId(1)) == 5


def test_a_stream_longer_than_the_context_is_refused(engine: Engine) -> None:
    prefill(engine, ids(120))
    with pytest.raises(KvFull, match="more than the 128"):
        engine.step([make_row(1, 120, 9)], ids(9))
    engine.step([make_row(1, 120, 8)], ids(8))


def test_streams_beyond_the_cache_are_refused_and_change_nothing(engine: Engine) -> None:
    rows = [make_row(stream, 0, 128) for stream in range(8)]
    engine.step(rows, np.tile(ids(128), 8))
    with pytest.raises(KvFull, match="release a stream first"):
        engine.step([make_row(8, 0, 1)], ids(1))
    assert engine.length(StreamId(8)) == 0
    engine.release(StreamId(0))
    engine.step([make_row(8, 0, 1)], ids(1))


def test_a_shared_beginning_is_as_good_as_a_run_one(engine: Engine) -> None:
    tokens, other = ids(60), np.concatenate([ids(45), ids(15, seed=9)])
    whole, whole_other = prefill(engine, tokens), prefill(engine, other, stream=2)
    engine.step([make_row(3, 0, 50)], tokens[:50])
    shares = [Share(StreamId(4), StreamId(3), 45), Share(StreamId(5), StreamId(4), 32)]
    rows = [make_row(3, 50, 10, wants=10), make_row(4, 45, 15, wants=15), make_row(5, 32, 28, wants=28)]
    got = engine.step(rows, np.concatenate([tokens[50:], other[45:], tokens[32:]]), shares=shares)
    np.testing.assert_allclose(got, np.concatenate([whole[50:], whole_other[45:], whole[32:]]), atol=1e-4)


def test_a_shared_beginning_outlives_its_source(engine: Engine) -> None:
    whole = prefill(engine, ids(60))
    share = Share(StreamId(2), StreamId(1), 40)
    got = engine.step([make_row(2, 40, 20, wants=20)], ids(60)[40:], shares=[share], release=[StreamId(1)])
    np.testing.assert_allclose(got, whole[40:], atol=1e-4)
    assert engine.length(StreamId(1)) == 0


def test_a_beginning_without_rejected_tokens_is_shared(engine: Engine) -> None:
    tokens = ids(40)
    whole = prefill(engine, tokens)
    engine.step([make_row(2, 0, 30)], np.concatenate([tokens[:20], ids(10, seed=3)]))
    engine.step([make_row(2, 20, 5, truncate_to=20)], tokens[20:25])
    got = engine.step([make_row(3, 25, 15, wants=15)], tokens[25:], shares=[Share(StreamId(3), StreamId(2), 25)])
    np.testing.assert_allclose(got, whole[25:], atol=1e-4)


@pytest.mark.parametrize("share", [(2, 1, 6), (2, 3, 1), (1, 1, 2), (2, 1, 0)])
def test_a_share_that_cannot_be_is_refused_and_changes_nothing(engine: Engine, share: tuple[int, int, int]) -> None:
    prefill(engine, ids(5))
    stream, source, tokens = share
    shares = [Share(StreamId(4), StreamId(1), 5), Share(StreamId(stream), StreamId(source), tokens)]
    with pytest.raises(BadStep):
        engine.step([], None, shares=shares, release=[StreamId(1)])
    assert [engine.length(StreamId(stream)) for stream in (1, 2, 4)] == [5, 0, 0]


def test_a_refused_step_has_shared_and_released_nothing(engine: Engine) -> None:
    whole = prefill(engine, ids(20))
    with pytest.raises(KvFull):
        engine.step(
            [make_row(2, 10, 119)], ids(119), shares=[Share(StreamId(2), StreamId(1), 10)], release=[StreamId(1)]
        )
    assert [engine.length(StreamId(stream)) for stream in (1, 2)] == [20, 0]
    got = engine.step([make_row(1, 15, 5, truncate_to=15, wants=5)], ids(20)[15:])
    np.testing.assert_allclose(got, whole[15:], atol=1e-4)


def test_a_failure_while_copying_makes_the_streams_begin_anew(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = prefill(engine, ids(9))

    def broken(*_: Any) -> Any:
        raise RuntimeError("the device went away")

    with monkeypatch.context() as patch:
        patch.setattr(engine, "_reserve", broken)
        with pytest.raises(EngineFailed, match="Copying the cache failed"):
            engine.step([], None, shares=[Share(StreamId(2), StreamId(1), 4)], release=[StreamId(1)])
    assert [engine.length(StreamId(stream)) for stream in (1, 2)] == [0, 0]
    np.testing.assert_allclose(prefill(engine, ids(9)), whole, atol=1e-4)


def test_a_failure_of_the_device_can_be_replayed(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = prefill(engine, ids(9))

    def broken(*_: Any) -> Any:
        raise RuntimeError("Exception from src/inference\nthe device went away")

    with monkeypatch.context() as patch:
        patch.setattr(engine, "_run", broken)
        with pytest.raises(EngineFailed, match="the device went away"):
            engine.step([make_row(2, 0, 4)], ids(4))
    np.testing.assert_allclose(engine.step([make_row(2, 0, 9, truncate_to=0, wants=9)], ids(9)), whole, atol=1e-4)


@pytest.mark.parametrize("name", ["paged", "stateful", "packed"])
def test_two_stages_answer_what_one_answers(library: Path, loaded: Engine, name: str) -> None:
    prompts = [ids(3 + 4 * index, seed=index) for index in range(5)]
    stages = [load(make_spec(library, first=a, last=b, engine=name)) for a, b in ((0, 2), (2, 3))]
    assert stages[0].step([make_row(count=3)], ids(3)).shape == (3, HIDDEN)
    stages[0].release(StreamId(1))
    assert generate(stages, prompts, 10, batch=3) == generate([loaded], prompts, 10, batch=1)
    for stage in stages:
        stage.close()


def test_engines_agree(library: Path) -> None:
    logits = [prefill(load(make_spec(library, engine=name)), ids(60)) for name in ("paged", "stateful", "packed")]
    np.testing.assert_allclose(logits[1:], [logits[0]] * 2, atol=1e-4)


def test_fast_numerics_run_too(library: Path) -> None:
    engine = load(make_spec(library, numerics="fast"))
    assert engine.fused
    assert np.isfinite(prefill(engine, ids(40))).all()


def test_a_folder_without_a_library_is_damaged(tmp_path: Path) -> None:
    with pytest.raises(StageLoadError) as caught:
        load(make_spec(tmp_path))
    assert caught.value.code == "damaged"


def test_a_missing_unit_is_damaged(tmp_path: Path) -> None:
    toy_library(tmp_path)
    (tmp_path / "units" / "001.bin").unlink()
    with pytest.raises(StageLoadError, match="001") as caught:
        load(make_spec(tmp_path))
    assert caught.value.code == "damaged"


def test_a_range_beyond_the_model_is_a_mismatch(library: Path) -> None:
    with pytest.raises(StageLoadError) as caught:
        load(make_spec(library, last=4))
    assert caught.value.code == "mismatch"


def test_an_unknown_device_is_a_load_failure(library: Path) -> None:
    with pytest.raises(StageLoadError, match="NOSUCH") as caught:
        load(make_spec(library, device="NOSUCH"))
    assert caught.value.code == "load"


def test_a_cache_beyond_the_memory_is_refused_before_it_is_made(library: Path) -> None:
    with pytest.raises(StageLoadError, match="plan fewer streams") as caught:
        load(make_spec(library, context_tokens=1 << 30, streams=1000))
    assert caught.value.code == "memory"


def test_a_load_tries_once_whether_its_device_multiplies_in_eight_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toy_library(tmp_path)
    tried: list[str] = []

    def quantizes(_core: Any, device: str, _options: Any) -> bool:
        tried.append(device)
        return False

    monkeypatch.setattr("agent.stage.engines.library.has_minima", lambda *_: True)
    monkeypatch.setattr("agent.stage.engines.library.quantizes_activations", quantizes)
    load(make_spec(tmp_path, engine="auto")).close()
    assert tried == ["CPU"]
