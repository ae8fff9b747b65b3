"""Answers kept to a grammar on real engines: the same text with and without guesses, and with a stage lost."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from agent.link.frames import FrameType, decode
from agent.stage.engines import Engine, load
from agent.stage.steps import StepRunner, read_grammars
from agent.stage.types import Sampling, StepTable, StreamId
from console.api.openai.grammars import answer_grammar
from console.api.openai.tools import CallPlan
from console.pipeline.dialects import PLAIN
from console.pipeline.drafts import NoDrafts
from console.pipeline.plans import Limits, Step
from console.pipeline.scheduler import Scheduler
from shard_export.library.chat import ChatCodec
from shard_export.library.store import load_manifest
from tests.support.spelling_library import BLANK, EOS, spelling_library, spelling_tokenizer
from tests.support.stage import make_spec, make_step

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"enum": ["anna", "bert", "berta"]},
        "years": {"type": "integer", "minimum": 0, "maximum": 120},
        "tags": {"type": "array", "items": {"enum": ["red", "green"]}, "minItems": 1, "maxItems": 4},
    },
    "required": ["name", "years", "tags"],
    "additionalProperties": False,
}
GRAMMAR = answer_grammar(SCHEMA, CallPlan(), PLAIN)
ANY_OBJECT = answer_grammar({"type": "object"}, CallPlan(), PLAIN)
NO_BLANKS = {BLANK: -100.0}
"""The toy model would fill its answers with them."""
SAMPLINGS = [
    Sampling(grammar=GRAMMAR, logit_bias=NO_BLANKS),
    Sampling(temperature=1.5, seed=7, grammar=GRAMMAR, logit_bias=NO_BLANKS),
    Sampling(temperature=0.8, seed=2, presence_penalty=0.5, logprobs=2, grammar=ANY_OBJECT),
    Sampling(temperature=0.8, seed=3),
]


class Foreseeing(NoDrafts):
    """Guesses the known answer, every fourth token wrong: some of those the grammar forbids, others it does not."""

    def __init__(self, known: Sequence[list[int]], wrong: int) -> None:
        super().__init__()
        self._known, self._wrong = known, wrong
        self.accepted = self.rejected = 0

    def drafts_for(self, stream: StreamId, ids: Sequence[int], room: int) -> Sequence[int]:
        known = self._known[stream - 1]
        guess = known[len(ids) : len(ids) + 7]
        return [token if (len(ids) + place) % 4 else self._wrong for place, token in enumerate(guess)]

    def judged(self, stream: StreamId, drafts: int, accepted: int) -> None:
        self.accepted += accepted
        self.rejected += drafts - accepted


def run(stages: Sequence[StepRunner], step: Step) -> tuple[list[int], list[Any]]:
    data = make_step(
        step.rows, np.array(step.tokens, np.int64) if step.rows else None, release=step.release, shares=step.shares
    )
    for stage in stages:
        data = stage.answer(data, 0.0)
    frame = decode(data)
    assert frame.type is FrameType.TOKENS, msgspec.msgpack.decode(frame.table)
    table = msgspec.msgpack.decode(frame.table, type=StepTable)
    assert not table.refused
    return [] if frame.tensor is None else frame.tensor.tolist(), table.logprobs


def answers(
    stages: Sequence[StepRunner],
    prompts: Sequence[list[int]],
    *,
    samplings: Sequence[Sampling] = SAMPLINGS,
    eos: Sequence[int] = (EOS,),
    drafts: NoDrafts | None = None,
    in_flight: int = 1,
    lost_after: int = 0,
    prefill: int = 256,
    tokens: int = 80,
) -> list[list[int]]:
    """Answer all prompts together; after `lost_after` steps every stage has forgotten all."""
    limits = Limits(in_flight, 4096, 256, 8, prefill_tokens=prefill)
    scheduler = Scheduler(limits, drafts or NoDrafts())
    for prompt, sampling in zip(prompts, samplings, strict=True):
        scheduler.add(prompt, tokens, sampling=sampling, eos=eos)
    said: dict[StreamId, list[int]] = {stream: [] for stream in scheduler.streams()}
    flying: deque[tuple[Step, tuple[list[int], list[Any]]]] = deque()
    came = 0
    while not scheduler.idle:
        while (step := scheduler.schedule()) is not None:
            flying.append((step, run(stages, step)))
        step, (ids, logprobs) = flying.popleft()
        for outcome in scheduler.update(step.id, ids, logprobs):
            said[outcome.stream] += outcome.ids
        came += 1
        if came == lost_after:
            flying.clear()
            scheduler.suspend()
            for stage in stages:
                stage.advance(stage._spec.epoch, stage._spec.stage)
            assert not scheduler.resume(limits)
    for stage in stages:
        stage.advance(stage._spec.epoch, stage._spec.stage)
    return list(said.values())


@pytest.fixture(scope="module")
def stages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[StepRunner]]:
    folder: Path = tmp_path_factory.mktemp("spelling")
    spelling_library(folder)
    fields: dict[str, Any] = {"context_tokens": 256}
    engines = [
        load(make_spec(folder, first=0, last=2, **fields)),
        load(make_spec(folder, first=2, last=3, stage=1, engine="stateful", **fields)),
    ]
    yield [StepRunner(engine.spec, engine, grammars=read_grammars(engine.spec, engine.manifest)) for engine in engines]
    for engine in engines:
        engine.close()


PROMPTS = [list(spelling_tokenizer().encode(text).ids) for text in ("give me one", "or two", "and more", "free")]


def check(texts: Sequence[str]) -> None:
    for text in texts:
        value = json.loads(text)
        assert value["name"] in {"anna", "bert", "berta"}
        assert 0 <= value["years"] <= 120
        assert 1 <= len(value["tags"]) <= 4
        assert value.keys() == {"name", "years", "tags"}


def test_answers_keep_to_their_schema_and_are_the_same_however_they_are_computed(stages: list[StepRunner]) -> None:
    plain = answers(stages, PROMPTS)
    check([spelling_tokenizer().decode(ids) for ids in plain[:2]])
    alone = [
        answers(stages, [prompt], samplings=[sampling])[0] for prompt, sampling in zip(PROMPTS, SAMPLINGS, strict=True)
    ]
    assert alone == plain
    assert answers(stages, PROMPTS, prefill=3, in_flight=2) == plain
    for lost_after in (2, 25):
        assert answers(stages, PROMPTS, lost_after=lost_after) == plain
    whole = [prompt + answer for prompt, answer in zip(PROMPTS, plain, strict=True)]
    for wrong in (PROMPTS[1][1], EOS):
        drafts = Foreseeing(whole, wrong)
        assert answers(stages, PROMPTS, drafts=drafts, in_flight=2, lost_after=4) == plain
        assert drafts.accepted
        assert drafts.rejected


@pytest.mark.slow
def test_the_real_model_keeps_to_a_schema_with_guesses_and_with_a_stage_lost(smollm2_library: Path) -> None:
    manifest = load_manifest(smollm2_library)
    codec, half = ChatCodec.load(smollm2_library, manifest.tokens, "m"), manifest.layer_count // 2
    engines: list[Engine] = [
        load(make_spec(smollm2_library, first=0, last=half, context_tokens=256)),
        load(make_spec(smollm2_library, first=half, last=manifest.layer_count, stage=1, context_tokens=256)),
    ]
    stages = [
        StepRunner(engine.spec, engine, grammars=read_grammars(engine.spec, engine.manifest)) for engine in engines
    ]
    asked = [f"Describe {name} as JSON with name, years and tags." for name in ("Anna", "Bert", "a town", "a tree")]
    prompts = [codec.encode_chat([{"role": "user", "content": text}]) for text in asked]
    options: dict[str, Any] = {"eos": manifest.tokens.eos_ids, "tokens": 80}
    plain = answers(stages, prompts, **options)
    check([codec.decode(ids) for ids in plain[:2]])
    whole = [prompt + answer for prompt, answer in zip(prompts, plain, strict=True)]
    wrong = codec.encode_text("Hello")[0]
    drafts = Foreseeing(whole, wrong)
    assert answers(stages, prompts, drafts=drafts, in_flight=2, lost_after=3, **options) == plain
    assert drafts.accepted
    assert drafts.rejected
    for engine in engines:
        engine.close()
