"""Guesses under the real coordinator: answers that end inside a round, and a draft model that dies under them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from agent.stage.sampling import GREEDY
from agent.stage.types import Sampling, StreamId
from console.pipeline.drafts import NoDrafts
from console.pipeline.speculation.draft_model import DraftModel
from console.pipeline.speculation.speculator import Speculator
from console.pipeline.types import Event, Failed, Finished, GenerationRequest, Text
from tests.conftest import ExpectLogs
from tests.support.leaks import child_processes
from tests.support.local_pipeline import LocalPipeline, ToyCodec, local_pipeline
from tests.support.stage import SEEDED, make_spec
from tests.support.toy_library import VOCAB, toy_library

CODEC = ToyCodec()
TOKENS = 60
Asking = AsyncGenerator[Event, None]
PROMPTS = ["A draft", "is only", "a guess"]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("toy")
    toy_library(folder)
    return folder


class Foreseeing(NoDrafts):
    """Guesses the whole rest of the answers it was told, once there are any."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[list[int]] = []
        self.rounds: list[tuple[int, int]] = []

    def drafts_for(self, stream: StreamId, ids: Sequence[int], room: int) -> Sequence[int]:
        return next((text[len(ids) :] for text in self.texts if text[: len(ids)] == list(ids)), [])

    def judged(self, stream: StreamId, drafts: int, accepted: int) -> None:
        self.rounds.append((drafts, accepted))


def ask(pipeline: LocalPipeline, prompt: str, *, sampling: Sampling = GREEDY, stop: Sequence[str] = ()) -> Asking:
    request = GenerationRequest(CODEC.encode_text(prompt), TOKENS, sampling, stop=list(stop))
    return pipeline.coordinator.generate(request)


async def whole(asking: Asking) -> tuple[str, Finished]:
    text = ""
    async with asyncio.timeout(60), aclosing(asking) as events:
        async for event in events:
            if isinstance(event, Finished):
                return text, event
            assert not isinstance(event, Failed), event
            if isinstance(event, Text):
                text += event.text
    raise AssertionError("an answer without an end")


async def test_a_stop_string_inside_a_round_ends_the_answer_where_it_would_end_plainly(library: Path) -> None:
    drafts = Foreseeing()
    async with local_pipeline(library, drafts=drafts) as pipeline:
        text, _ = await whole(ask(pipeline, "stop me"))
        stop = text[20:23]
        before = await whole(ask(pipeline, "stop me", stop=[stop]))
        drafts.texts = [CODEC.encode_text("stop me" + text)]
        drafts.rounds = []
        stopped = await whole(ask(pipeline, "stop me", stop=[stop]))
    assert drafts.rounds[1:] == [(TOKENS - 2, TOKENS - 2)]
    assert stopped[0] == before[0] == text[: text.index(stop)]
    assert (stopped[1].reason, stopped[1].usage) == (before[1].reason, before[1].usage)


async def test_an_answer_whose_client_leaves_inside_a_round_leaves_nothing_behind(library: Path) -> None:
    drafts = Foreseeing()
    async with local_pipeline(library, drafts=drafts) as pipeline:
        text, _ = await whole(ask(pipeline, "leave"))
        other, _ = await whole(ask(pipeline, "stay"))
        drafts.texts = [CODEC.encode_text(one) for one in ("leave" + text, "stay" + other)]
        leaving = ask(pipeline, "leave")
        staying = asyncio.create_task(whole(ask(pipeline, "stay")))
        async with aclosing(leaving):
            await anext(leaving)  # its first token; the round with all others is on its way
        assert (await staying)[0] == other
        assert (await whole(ask(pipeline, "leave")))[0] == text


class Keen(Speculator):
    """Guesses whether it pays or not: the toy model is so quick that on a busy machine no draft of it would."""

    def _count(self, guessing: Any, stream: StreamId, ids: Sequence[int], room: int) -> int:
        return 0 if self._proposer.kind(stream, ids) is None else min(4, room)


async def test_a_draft_model_that_dies_amid_answers_costs_only_its_drafts(
    library: Path, expected_logs: ExpectLogs
) -> None:
    expected_logs("console.pipeline.speculation.draft_model", "gives no drafts: .*signal 9")
    samplings = [GREEDY, SEEDED, Sampling(temperature=0.7, seed=4, presence_penalty=0.5)]
    asked = list(zip(PROMPTS, samplings, strict=True))
    async with local_pipeline(library, drafts=NoDrafts()) as pipeline:
        plain = [await whole(ask(pipeline, prompt, sampling=sampling)) for prompt, sampling in asked]
    model = DraftModel("toy", make_spec(library), vocab_size=VOCAB, pause_s=3600.0)
    async with local_pipeline(library, drafts=Keen(model)) as pipeline:
        loaded = asyncio.Event()
        left = 8

        def on_ready() -> None:
            nonlocal left
            loaded.set()
            left -= 1
            if left == 0:
                (child,) = (child for child in child_processes() if "agent.stage.worker" in child.cmdline())
                child.kill()
            pipeline.coordinator.drafts_ready()

        model.start(on_ready)
        async with asyncio.timeout(60):
            await loaded.wait()
        answers = await asyncio.gather(*(whole(ask(pipeline, prompt, sampling=one)) for prompt, one in asked))
        assert left <= 0
        assert [text for text, _ in answers] == [text for text, _ in plain]
        status = pipeline.coordinator.status().speculation
        assert "signal 9" in status.reason
        assert status.acceptance > 0.8
    await model.close()
