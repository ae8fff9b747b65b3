"""PCs that play a stage over the real hub without a model: they answer every load, and the tail says a fixed text."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from agent.link.frames import Frame, FrameType, decode, encode
from agent.link.messages import FetchLayers, Keep, LayerRange, LayersFetched, decode_from_console
from agent.link.stage_messages import AdvanceEpoch, LoadStage, StageFailed, StageProgress, StageReady, UnloadStage
from agent.stage.types import Row, StageTiming, StepTable
from shard_export.library.manifest import Manifest, Tokens
from tests.support.byte_tokens import EOS, VOCABULARY, byte_tokenizer
from tests.support.fleet import Fleet, ScriptedAgent, join, make_report
from tests.support.libraries import make_file, make_library

TEMPLATE = "{% for message in messages %}{{ message.role[0] }}:{{ message.content }}\n{% endfor %}a:"


def make_chat_library(
    folder: Path, *, model_id: str = "small", tokenizer: str = "", layers: int = 4, **fields: Any
) -> Manifest:
    """Write a library with a chat template; `tokenizer` is JSON (empty: one token per byte). Units are no graphs."""
    files = [
        make_file(folder, "chat/tokenizer.json", (tokenizer or byte_tokenizer().to_str()).encode()),
        make_file(folder, "chat/chat_template.jinja", TEMPLATE.encode()),
    ]
    tokens = Tokens(files, [EOS], None, None, False, "chat/chat_template.jinja")
    values: dict[str, Any] = {"vocab_size": VOCABULARY, "context_tokens": 512, "tokens": tokens} | fields
    manifest, _ = make_library(folder, layers=layers, model_id=model_id, **values)
    return manifest


@dataclass
class PlayedPC:
    """A connected PC. `text` is what its tail says, one byte a token, then EOS; `fails` is its answer to a load."""

    agent: ScriptedAgent
    text: str = "Paris."
    fails: str = ""
    report: dict[str, Any] = field(default_factory=dict)
    mute: bool = False
    """Whether it takes steps without answering them."""
    answers_left: int = -1
    """After so many steps it is mute; negative: never."""
    frozen: bool = False
    """Whether its stage's process answers nothing, not even what it is told."""
    holding: asyncio.Event | None = None
    """What a load waits for."""
    loads: list[LoadStage] = field(default_factory=list)
    advances: list[AdvanceEpoch] = field(default_factory=list)
    fetches: list[LayerRange] = field(default_factory=list)
    unloads: list[UnloadStage] = field(default_factory=list)
    kept: list[LayerRange] | None = None
    """What has to stay in its store, as it heard last."""
    cannot_fetch: str = ""
    """What it answers when layers are brought to it; empty: it has them."""
    prompts: dict[tuple[int, int], int] = field(default_factory=dict)
    """Where each stream's answer begins; all PCs of a fleet know, so that whoever takes over goes on with the text."""
    stepped: asyncio.Event = field(default_factory=asyncio.Event)
    muted: asyncio.Event = field(default_factory=asyncio.Event)

    async def play(self) -> None:
        """Answer everything until the links close."""
        with contextlib.suppress(Exception):
            async with asyncio.TaskGroup() as group:
                group.create_task(self._control())
                group.create_task(self._data())

    async def _control(self) -> None:
        agent = self.agent
        while True:
            message = await self._hear()
            if isinstance(message, UnloadStage):
                self.unloads.append(message)
            elif isinstance(message, AdvanceEpoch):
                self.advances.append(message)
                if self.frozen:
                    continue
                load = next(load for load in reversed(self.loads) if load.pipeline == message.pipeline)
                report = make_report(load, kv_tokens=4096, **self.report)
                await agent.say(StageReady(message.pipeline, message.epoch, message.stage, report))
            elif isinstance(message, FetchLayers):
                self.fetches.append(message.layers)
                await agent.say(LayersFetched(message.layers, self.cannot_fetch))
            elif isinstance(message, Keep):
                self.kept = message.ranges
            elif isinstance(message, LoadStage):
                self.loads.append(message)
                place = (message.pipeline, message.epoch, message.stage)
                if self.holding is not None:
                    await self.holding.wait()
                if self.fails:
                    await agent.say(StageFailed(*place, self.fails, "it has not enough memory."))
                    continue
                await agent.say(StageProgress(*place, "fetch", 1, 2))
                await agent.say(StageReady(*place, make_report(message, kv_tokens=4096, **self.report)))

    async def _hear(self) -> Any:
        return decode_from_console(await self.agent.control.recv(decode=False))

    async def _data(self) -> None:
        while True:
            frame = decode(await self.agent.data.recv(decode=False))
            if self.answers_left == 0:
                self.mute = True
            self.answers_left -= 1
            self.stepped.set()
            if self.mute:
                self.muted.set()
            if not (self.mute or self.frozen):
                await self.agent.data.send(self._answer(frame))

    def _answer(self, frame: Frame) -> bytes:
        load = next(load for load in reversed(self.loads) if load.pipeline == frame.pipeline)
        table = msgspec.msgpack.decode(frame.table, type=StepTable)
        # Less than any way over TLS takes: what a stage says of itself must leave something for its link.
        timed = msgspec.structs.replace(table, timings=[*table.timings, StageTiming(100, 10)])
        data = msgspec.msgpack.encode(timed)
        place = {"pipeline": frame.pipeline, "epoch": frame.epoch, "step": frame.step, "sequence": frame.sequence}
        if load.last < 4:
            hidden = np.zeros((max(1, sum(row.count for row in table.rows)), 8), np.float32)
            return encode(Frame(FrameType.STEP, stage=frame.stage + 1, table=data, tensor=hidden, **place))
        ids = [token for row in table.rows for token in self._tokens(frame.pipeline, row)]
        tensor = np.array(ids, np.int32) if ids else None
        return encode(Frame(FrameType.TOKENS, stage=frame.stage, table=data, tensor=tensor, **place))

    def _tokens(self, pipeline: int, row: Row) -> list[int]:
        alphabet = byte_tokenizer()
        ids = alphabet.encode(self.text, add_special_tokens=False).ids
        end = row.first + row.count
        start = self.prompts.setdefault((pipeline, row.stream), end) if row.wants else end
        places = range(end - row.wants + 1 - start, end + 1 - start)
        return [ids[place] if place < len(ids) else EOS for place in places]


@contextlib.asynccontextmanager
async def playing(
    fleet: Fleet, name: str, *, hello: dict[str, Any] | None = None, **settings: Any
) -> AsyncIterator[PlayedPC]:
    """Join a PC to the fleet and let it play; at the end its links are closed."""
    identity = await asyncio.to_thread(fleet.enrol, name)
    agent = await join(fleet, identity, host=name, **{"advances": True, **(hello or {})})
    pc = PlayedPC(agent, prompts=fleet.prompts, **settings)
    task = asyncio.create_task(pc.play())
    try:
        yield pc
    finally:
        await pc.agent.close()
        await task
