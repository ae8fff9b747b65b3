"""A whole pipeline in this process: the real coordinator over real engines on the toy library, each stage on a thread.

Frames are encoded and decoded as over links; nothing is pretended but the distance.
"""

from __future__ import annotations

import asyncio
import contextlib
import string
import time
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from agent.link.frames import FrameType, decode
from agent.stage.engines import Engine, load
from agent.stage.steps import StepRunner
from agent.stage.types import Epoch, PipelineId
from console.pipeline.coordinator import Coordinator
from console.pipeline.dialects import PLAIN
from console.pipeline.drafts import DraftSource
from console.pipeline.speculation.proposers import LookupProposer
from console.pipeline.speculation.speculator import Speculator
from console.pipeline.text import TextStream
from console.pipeline.types import StageInfo
from tests.support.stage import make_spec
from tests.support.toy_library import VOCAB

ALPHABET = string.ascii_letters + string.digits + " ."
LAYERS = 3


class ToyCodec:
    """One letter a token: what the toy model's 64 ids look like as text."""

    eos_ids: frozenset[int] = frozenset()
    vocab_size = VOCAB
    probe_id = 1
    dialect = PLAIN

    def encode_chat(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None = None) -> list[int]:
        return self.encode_text(messages[-1]["content"])

    def encode_text(self, text: str) -> list[int]:
        return [ALPHABET.index(letter) for letter in text]

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(ALPHABET[token] for token in ids)

    def text_stream(self) -> TextStream:
        return TextStream(self.decode)

    def token_bytes(self, token: int) -> bytes:
        return ALPHABET[token].encode()


class LocalPipeline:
    """Two stages and their coordinator. Event loop only; made by `local_pipeline`."""

    def __init__(self, engines: Sequence[Engine], coordinator: Coordinator) -> None:
        self.engines = engines
        self.coordinator = coordinator

    @property
    def kv_tokens(self) -> int:
        return min(engine.kv_tokens for engine in self.engines)


@contextlib.asynccontextmanager
async def local_pipeline(
    library: Path, *, streams: int = 8, context_tokens: int = 128, drafts: DraftSource | None = None
) -> AsyncIterator[LocalPipeline]:
    """Load the toy library as two `exact` stages that speculate by lookup, or from `drafts`."""
    inboxes: list[asyncio.Queue[bytes]] = [asyncio.Queue(), asyncio.Queue()]
    settings: dict[str, Any] = {"streams": streams, "context_tokens": context_tokens}
    engines = [
        load(make_spec(library, first=0, last=2, **settings)),
        load(make_spec(library, first=2, last=LAYERS, stage=1, **settings)),
    ]
    coordinator = Coordinator(
        model_id="toy",
        context_tokens=context_tokens,
        kv_tokens=min(engine.kv_tokens for engine in engines),
        streams=streams,
        stages=[StageInfo(f"id-{i}", f"pc-{i}", i, i + 1, "paged", True) for i in range(2)],
        tokenizer=ToyCodec(),
        submit=inboxes[0].put_nowait,
        pipeline=PipelineId(7),
        epoch=Epoch(2),
        drafts=drafts or Speculator(LookupProposer()),
    )

    async def serve(stage: int, thread: ThreadPoolExecutor) -> None:
        runner = StepRunner(engines[stage].spec, engines[stage])
        loop = asyncio.get_running_loop()
        while True:
            data = await inboxes[stage].get()
            answer = await loop.run_in_executor(thread, runner.answer, data, time.perf_counter())
            frame = decode(answer)
            if frame.type is FrameType.STEP:
                inboxes[stage + 1].put_nowait(answer)
            else:
                coordinator.on_frame(frame)

    with ThreadPoolExecutor(1) as first, ThreadPoolExecutor(1) as second:
        tasks = [asyncio.create_task(serve(index, thread)) for index, thread in enumerate((first, second))]
        try:
            yield LocalPipeline(engines, coordinator)
        finally:
            await coordinator.close()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    for engine in engines:
        engine.close()
