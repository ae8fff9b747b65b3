"""Frames in, frames out: a stage passes steps on, samples at the tail, and answers every failure with a NACK."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from agent.link.frames import Frame, FrameType, decode, encode
from agent.stage.engines import Engine, load
from agent.stage.engines.selection import Selection
from agent.stage.sampling import sample
from agent.stage.steps import GENTLE_INFER_MS, StepRunner, describe
from agent.stage.types import Epoch, Nack, Share, StageReport, StepTable, StreamId
from shard_export.library.manifest import library_digest
from shard_export.library.store import load_manifest
from tests.support.stage import SEEDED, make_row, make_spec, make_step
from tests.support.toy_library import HIDDEN, VOCAB, toy_library

SELECTED = Selection("paged", "it was asked for", {"stateful": "it was not"}, 1.5)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("toy")
    toy_library(folder)
    return folder


@pytest.fixture(scope="module")
def engines(library: Path) -> Iterator[list[Engine]]:
    specs = [make_spec(library, first=0, last=2), make_spec(library, first=2, last=3, stage=1)]
    loaded = [load(spec) for spec in specs]
    yield loaded
    for engine in loaded:
        engine.close()


@pytest.fixture
def stages(engines: list[Engine]) -> Iterator[list[StepRunner]]:
    yield [StepRunner(engine.spec, engine) for engine in engines]
    for engine in engines:
        for stream in range(20):
            engine.release(StreamId(stream))


def through(stages: list[StepRunner], data: bytes) -> Frame:
    for stage in stages:
        data = stage.answer(data, 0.0)
    return decode(data)


def table_of(frame: Frame) -> StepTable:
    return msgspec.msgpack.decode(frame.table, type=StepTable)


def nack_of(data: bytes) -> Nack:
    frame = decode(data)
    assert frame.type is FrameType.NACK
    return msgspec.msgpack.decode(frame.table, type=Nack)


def ids(count: int) -> Any:
    return np.arange(count) % VOCAB


def test_an_inner_stage_hands_hidden_states_to_the_next(stages: list[StepRunner]) -> None:
    frame = decode(stages[0].answer(make_step([make_row(count=3)], ids(3)), 0.0))
    assert (frame.type, frame.stage) == (FrameType.STEP, 1)
    assert (frame.pipeline, frame.epoch, frame.step, frame.sequence) == (7, 2, 5, 9)
    assert frame.tensor is not None
    assert frame.tensor.dtype == np.float32
    assert frame.tensor.shape == (3, HIDDEN)


def test_fast_stages_talk_in_half_precision_and_exact_ones_refuse_it(library: Path, stages: list[StepRunner]) -> None:
    engine = load(make_spec(library, first=0, last=2, numerics="fast"))
    tail = load(make_spec(library, first=2, last=3, stage=1, numerics="fast"))
    step = make_step([make_row(count=3)], ids(3))
    try:
        halved = StepRunner(engine.spec, engine).answer(step, 0.0)
        frame = decode(halved)
        assert frame.tensor is not None
        assert frame.tensor.dtype == np.float16
        assert len(halved) < len(stages[0].answer(step, 0.0))
        assert decode(StepRunner(tail.spec, tail).answer(halved, 0.0)).type is FrameType.TOKENS
        refusal = nack_of(stages[1].answer(halved, 0.0))
        assert refusal.code == "bad_step"
        assert "float16" in refusal.message
    finally:
        engine.close()
        tail.close()


def test_the_tail_answers_with_the_wanted_tokens(stages: list[StepRunner]) -> None:
    rows = [make_row(1, 0, 3), make_row(2, 0, 4, wants=2), make_row(3, 0, 2, wants=0)]
    frame = through(stages, make_step(rows, ids(9)))
    assert (frame.type, frame.stage, frame.step, frame.sequence) == (FrameType.TOKENS, 1, 5, 9)
    assert frame.tensor is not None
    assert frame.tensor.dtype == np.int32
    assert frame.tensor.shape == (3,)
    assert table_of(frame).rows == rows


def test_every_stage_appends_its_timing(stages: list[StepRunner]) -> None:
    table = table_of(through(stages, make_step([make_row()], ids(1))))
    assert len(table.timings) == 2
    assert all(timing.compute_us > 0 for timing in table.timings)


def test_a_step_that_only_releases_still_travels(stages: list[StepRunner], engines: list[Engine]) -> None:
    through(stages, make_step([make_row(4)], ids(1)))
    frame = through(stages, make_step([], None, release=[4]))
    assert frame.type is FrameType.TOKENS
    assert [engine.length(StreamId(4)) for engine in engines] == [0, 0]


def test_a_released_id_can_begin_again_in_the_same_step(stages: list[StepRunner]) -> None:
    through(stages, make_step([make_row(4, 0, 5)], ids(5)))
    assert through(stages, make_step([make_row(4, 0, 2)], ids(2), release=[4])).type is FrameType.TOKENS


def test_a_share_reaches_every_stage(stages: list[StepRunner], engines: list[Engine]) -> None:
    whole = through(stages, make_step([make_row(1, 0, 5)], ids(5))).tensor
    share = Share(StreamId(2), StreamId(1), 3)
    frame = through(stages, make_step([make_row(2, 3, 2)], ids(5)[3:], shares=[share], release=[1]))
    assert whole is not None
    assert frame.tensor is not None
    assert frame.tensor.tolist() == whole.tolist()
    assert table_of(frame).shares == [share]
    assert [[engine.length(StreamId(stream)) for stream in (1, 2)] for engine in engines] == [[0, 5], [0, 5]]


def test_sampling_is_remembered_from_the_first_row(stages: list[StepRunner], engines: list[Engine]) -> None:
    through(stages, make_step([make_row(1, 0, 3, sampling=SEEDED)], ids(3)))
    frame = through(stages, make_step([make_row(1, 3, 2, wants=2)], ids(2)))
    hidden = engines[0].step([make_row(2, 0, 5)], np.concatenate([ids(3), ids(2)]))
    logits = engines[1].step([make_row(2, 0, 5, wants=2)], hidden)
    assert frame.tensor is not None
    assert frame.tensor.tolist() == sample(logits, [(SEEDED, 4), (SEEDED, 5)]).tolist()


def test_a_released_stream_forgets_its_sampling(stages: list[StepRunner]) -> None:
    greedy = through(stages, make_step([make_row(1, 0, 3, wants=3)], ids(3))).tensor
    through(stages, make_step([make_row(2, 0, 3, sampling=SEEDED)], ids(3)))
    again = through(stages, make_step([make_row(2, 0, 3, wants=3)], ids(3), release=[2])).tensor
    assert greedy is not None
    assert again is not None
    assert again.tolist() == greedy.tolist()


def test_another_epoch_is_stale(stages: list[StepRunner]) -> None:
    nack = nack_of(stages[0].answer(make_step([make_row()], ids(1), epoch=1), 0.0))
    assert (nack.stage, nack.code) == (0, "stale")


def test_a_stage_goes_on_in_another_epoch_with_nothing_cached(stages: list[StepRunner], engines: list[Engine]) -> None:
    through(stages, make_step([make_row(count=3, sampling=SEEDED)], ids(3)))
    for stage in stages:
        stage.advance(Epoch(3), 1)
    assert [engine.length(StreamId(1)) for engine in engines] == [0, 0]
    assert nack_of(stages[0].answer(make_step([make_row(first=3)], ids(1)), 0.0)).code == "stale"
    again = make_step([make_row(count=4)], ids(4), epoch=3, stage=1)
    answer = decode(stages[0].answer(again, 0.0))
    assert (answer.type, answer.epoch, answer.stage) == (FrameType.STEP, 3, 2)
    assert decode(stages[1].answer(encode(msgspec.structs.replace(answer, stage=1)), 0.0)).type is FrameType.TOKENS


@pytest.mark.parametrize("fields", [{"pipeline": 8}, {"stage": 1}, {"type": FrameType.TOKENS}, {"table": b"\xc1"}])
def test_a_frame_for_somebody_else_is_a_bad_step(stages: list[StepRunner], fields: dict[str, Any]) -> None:
    data = stages[0].answer(make_step([make_row()], ids(1), **fields), 0.0)
    assert nack_of(data).code == "bad_step"


def test_a_nack_echoes_step_and_sequence(stages: list[StepRunner]) -> None:
    frame = decode(stages[0].answer(make_step([make_row(1, 9)], ids(1)), 0.0))
    assert (frame.pipeline, frame.epoch, frame.step, frame.sequence, frame.stage) == (7, 2, 5, 9, 0)


def test_a_frame_with_a_flipped_bit_is_refused_under_its_own_numbers(stages: list[StepRunner]) -> None:
    data = bytearray(make_step([make_row()], ids(1)))
    data[-1] ^= 1
    answer = stages[0].answer(bytes(data), 0.0)
    assert nack_of(answer).code == "bad_step"
    assert decode(answer).sequence == 9


def test_a_full_cache_is_a_nack_and_the_stage_goes_on(stages: list[StepRunner]) -> None:
    nack = nack_of(stages[0].answer(make_step([make_row(count=129)], ids(129)), 0.0))
    assert nack.code == "kv_full"
    assert decode(stages[0].answer(make_step([make_row(count=5)], ids(5)), 0.0)).type is FrameType.STEP


def test_hidden_states_that_are_not_numbers_end_in_an_engine_nack(stages: list[StepRunner]) -> None:
    step = make_step([make_row()], np.full((1, HIDDEN), np.nan, np.float32), stage=1)
    assert nack_of(stages[1].answer(step, 0.0)).code == "engine"


def test_the_report_says_what_was_loaded(engines: list[Engine]) -> None:
    report: StageReport = describe(engines[1].spec, engines[1], SELECTED, 12.5)
    assert (report.first, report.last, report.fused, report.load_ms) == (2, 3, True, 12.5)
    assert report.kv_tokens >= 8 * 128
    assert report.probe_ms == 1.5
    assert report.memory_bytes > engines[1].kv_bytes
    assert (report.cache, report.kv_bytes) == ("f32", engines[1].kv_bytes)
    assert report.engine_note == "it was asked for; not stateful: it was not"
    assert engines[1].length(StreamId(-1)) == 0


def test_the_report_of_a_pc_with_an_owner_says_how_long_an_inference_may_take(engines: list[Engine]) -> None:
    engine = engines[0]
    gentle = msgspec.structs.replace(engine.spec, gentle=True)
    packed = msgspec.structs.replace(SELECTED, engine="packed")
    said = [describe(spec, engine, how, 0).infer_ms for spec in (engine.spec, gentle) for how in (SELECTED, packed)]
    assert said == [0, 0, GENTLE_INFER_MS, 0]


def test_the_report_names_the_library_by_its_digest(engines: list[Engine], library: Path) -> None:
    assert describe(engines[0].spec, engines[0], SELECTED, 0).library_digest == library_digest(load_manifest(library))
