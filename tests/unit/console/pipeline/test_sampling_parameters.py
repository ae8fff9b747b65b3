"""What the pipeline carries for penalties and log-probabilities, and that it carries nothing for other streams."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

import msgspec
import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models

from agent.link.frames import Frame, FrameType, decode
from agent.stage.types import Epoch, Logprobs, PipelineId, Sampling, StageTiming, StepTable, StreamId
from console.pipeline.answers import Answer
from console.pipeline.coordinator import Coordinator
from console.pipeline.errors import UnknownToken
from console.pipeline.plans import Limits, Outcome
from console.pipeline.scheduler import Scheduler
from console.pipeline.tokens import ModelTokenizer, ToolCodec
from console.pipeline.types import Event, Failed, Finished, GenerationRequest, ScoredToken, StageInfo, Text
from tests.support.byte_tokens import BOS, EOS, byte_tokenizer

TOKENIZER = ModelTokenizer(ToolCodec(byte_tokenizer()), eos_ids=[EOS], bos_id=BOS)
PENALISED = Sampling(presence_penalty=0.5)


def make_scheduler(**limits: Any) -> Scheduler:
    return Scheduler(Limits(**{"stages": 1, "kv_tokens": 256, "context_tokens": 64, "streams": 4, **limits}))


def make_answer(*, logprobs: int = 1, stop: list[str] | None = None) -> Answer:
    request = GenerationRequest([1], 9, Sampling(logprobs=logprobs), stop or [])
    return Answer(request, TOKENIZER, TOKENIZER.eos_ids, lambda: 0.0)


def make_outcome(text: str, *, finish: Any = None, eos: bool = False) -> Outcome:
    ids = TOKENIZER.encode_text(text) + [EOS] * eos
    return Outcome(StreamId(1), ids, finish, [Logprobs(-float(place), [(ids[0], -0.5)]) for place in range(len(ids))])


def events_of(answer: Answer) -> list[Event]:
    return [answer.events.get_nowait() for _ in range(answer.events.qsize())]


def test_rows_of_a_penalised_stream_carry_their_ids_and_where_the_answer_starts() -> None:
    scheduler = make_scheduler(prefill_tokens=2)
    scheduler.add([5, 6, 7], 2, sampling=PENALISED)
    rows = []
    while (step := scheduler.schedule()) is not None:
        rows += step.rows
        scheduler.update(step.id, [9] * step.wants)
    assert [row.ids for row in rows] == [[5, 6], [7], [9]]
    assert rows[0].sampling is not None
    assert rows[0].sampling.answer_start == 3


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(1.0, logit_bias={3: 1.0}, logprobs=5)])
def test_rows_of_other_streams_carry_nothing_more(sampling: Sampling) -> None:
    scheduler = make_scheduler()
    scheduler.add([5, 6, 7], 2, sampling=sampling)
    step = scheduler.schedule()
    assert step is not None
    assert step.rows[0].ids is None
    assert step.rows[0].sampling is sampling


def test_each_stream_gets_its_own_log_probabilities() -> None:
    scheduler = make_scheduler()
    one, two = (scheduler.add([5], 2, sampling=Sampling(logprobs=asked)) for asked in (0, -1))
    step = scheduler.schedule()
    assert step is not None
    assert scheduler.update(step.id, [7, 8], [Logprobs(-0.5, []), None]) == [
        Outcome(one, [7], None, [Logprobs(-0.5, [])]),
        Outcome(two, [8], None, [None]),
    ]


def test_log_probabilities_come_with_the_text_of_their_tokens() -> None:
    answer = make_answer()
    ids = TOKENIZER.encode_text("a😀")
    answer.push(make_outcome("a😀", finish="stop", eos=True), 0.0)
    text, end = events_of(answer)
    assert isinstance(text, Text)
    assert isinstance(end, Finished)
    assert (text.text, text.token_ids) == ("a😀", ids)
    assert b"".join(entry.chosen.data for entry in text.logprobs) == "a😀".encode()
    assert [entry.chosen.logprob for entry in text.logprobs] == [0.0, -1.0, -2.0, -3.0, -4.0]
    assert text.logprobs[0].top == [ScoredToken(ids[0], b"a", -0.5)]


def test_log_probabilities_nobody_asked_for_are_left_out() -> None:
    answer = make_answer(logprobs=-1)
    answer.push(make_outcome("a"), 0.0)
    assert events_of(answer) == [Text("a", TOKENIZER.encode_text("a"))]


def test_a_tail_that_sends_no_log_probabilities_fails_the_answer() -> None:
    answer = make_answer()
    assert answer.push(Outcome(StreamId(1), [65], None, [None]), 0.0)
    (failed,) = events_of(answer)
    assert isinstance(failed, Failed)
    assert (failed.code, failed.retryable) == ("stage_failed", False)


def test_every_byte_has_a_token_and_special_ones_are_named() -> None:
    ids = TOKENIZER.encode_text(" é\n😀")
    assert b"".join(map(TOKENIZER.token_bytes, ids)) == " é\n😀".encode()
    assert (TOKENIZER.token_bytes(EOS), TOKENIZER.token_bytes(100_000)) == (b"</s>", b"")


def test_tokens_with_byte_fallback_are_bytes_too() -> None:
    vocabulary = {"<unk>": 0, "<0xF0>": 1, "\u2581the": 2, "é": 3}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token="<unk>", byte_fallback=True))
    tokenizer.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback()])
    codec = ToolCodec(tokenizer)
    assert [codec.token_bytes(token) for token in (1, 2, 3)] == [b"\xf0", b" the", "é".encode()]


class Wire:
    """Takes the coordinator's frames; the test answers them by hand."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.coordinator = Coordinator(
            model_id="toy", context_tokens=64, kv_tokens=256, streams=4, tokenizer=TOKENIZER, pipeline=PipelineId(3),
            stages=[StageInfo("id", "pc", 0, 2, "paged", True)], submit=self.submit, epoch=Epoch(1),
        )  # fmt: skip

    def submit(self, data: bytes) -> None:
        self.frames.append(decode(data))

    def answer(self, ids: list[int], logprobs: list[Logprobs | None]) -> None:
        frame = self.frames[-1]
        table = msgspec.msgpack.decode(frame.table, type=StepTable)
        reply = StepTable(table.rows, table.release, [StageTiming(1, 1)], logprobs)
        changes = {"type": FrameType.TOKENS, "table": msgspec.msgpack.encode(reply), "tensor": np.array(ids, np.int32)}
        self.coordinator.on_frame(msgspec.structs.replace(frame, **changes))


@pytest.mark.parametrize("token", [-1, TOKENIZER.vocab_size])
async def test_a_bias_on_an_id_the_model_lacks_is_refused_before_anything_runs(token: int) -> None:
    wire = Wire()
    with pytest.raises(UnknownToken, match=r"0\.\.257"):
        await anext(wire.coordinator.generate(GenerationRequest([1], 5, Sampling(logit_bias={token: 1.0}))))
    assert not wire.frames
    await wire.coordinator.close()


async def test_log_probabilities_go_from_the_tokens_frame_to_the_text() -> None:
    wire = Wire()
    async with aclosing(wire.coordinator.generate(GenerationRequest([1], 1, Sampling(logprobs=1)))) as events:
        first = asyncio.ensure_future(anext(events))
        await asyncio.sleep(0)
        wire.answer([65], [Logprobs(-0.5, [(66, -0.25)])])
        text = await first
    assert isinstance(text, Text)
    assert [(entry.chosen.logprob, entry.top[0].token_id) for entry in text.logprobs] == [(-0.5, 66)]
    await wire.coordinator.close()


@pytest.mark.parametrize("logprobs", [[None, None], [Logprobs(-0.5, [(258, -0.5)])], [Logprobs(-0.5, [(-1, -0.5)])]])
async def test_log_probabilities_that_cannot_be_true_fail_the_step(
    logprobs: list[Logprobs | None], expected_logs: Any
) -> None:
    expected_logs("console.pipeline", "something else than its tokens")
    wire = Wire()
    async with aclosing(wire.coordinator.generate(GenerationRequest([1], 1, Sampling(logprobs=1)))) as events:
        first = asyncio.ensure_future(anext(events))
        await asyncio.sleep(0)
        wire.answer([65], logprobs)
        assert isinstance(await first, Failed)
    await wire.coordinator.close()
