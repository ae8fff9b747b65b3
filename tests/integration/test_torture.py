"""Hard days: nothing of one stream ever shows in another, and clients that vanish leave nothing behind.

Real coordinator, speculation, frames and engines over the toy model, in `exact`. An answer is compared with what its
prompt gets alone, token for token and log-probability for log-probability: the toy model's logits move with every token
of the cache, so a single foreign token would be seen.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import aclosing
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import msgspec
import pytest

from agent.stage.types import Sampling
from console.pipeline.coordinator import Coordinator
from console.pipeline.types import Failed, Finished, GenerationRequest, Text
from tests.support.api import CHAT_KEY, chat_app, serving
from tests.support.local_pipeline import ALPHABET, LocalPipeline, ToyCodec, local_pipeline
from tests.support.patience import PATIENCE_S
from tests.support.toy_library import toy_library

STREAMS = 8
CANARIES = 24
CODEC = ToyCodec()
NEAR = 2e-3
"""How far a log-probability may move with what shares the step; a foreign token moves it by more than a hundred times
as much."""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("toy")
    toy_library(folder)
    return folder


class Said(NamedTuple):
    """An answer: its ids, their log-probabilities, its text."""

    ids: list[int]
    logprobs: list[float]
    text: str


class Canary(NamedTuple):
    """A secret that only one stream knows, how it is sampled, and what it gets when nobody else is there."""

    prompt: list[int]
    sampling: Sampling
    alone: Said


async def say(coordinator: Coordinator, prompt: list[int], tokens: int, sampling: Sampling) -> Said:
    said = Said([], [], "")
    async with aclosing(coordinator.generate(GenerationRequest(prompt, tokens, sampling))) as events:
        async for event in events:
            assert not isinstance(event, Failed), event
            if isinstance(event, Text):
                said.ids.extend(event.token_ids)
                said.logprobs.extend(entry.chosen.logprob for entry in event.logprobs)
                said = said._replace(text=said.text + event.text)
            elif isinstance(event, Finished):
                assert (event.reason, event.usage.completion_tokens) == ("length", tokens)
    return said


async def make_canaries(pipeline: LocalPipeline, chance: random.Random) -> list[Canary]:
    canaries = []
    for index in range(CANARIES):
        # Some begin alike, as conversations with the same opening do.
        opening = CODEC.encode_text("You keep a secret. ") if index % 2 else []
        prompt = opening + [chance.randrange(64) for _ in range(chance.randint(1, 60))]
        sampling = Sampling(temperature=0.8 * (index % 3), seed=index, logprobs=0)
        canaries.append(Canary(prompt, sampling, await say(pipeline.coordinator, prompt, 40, sampling)))
    return canaries


async def keep_secrets(library: Path, rounds: int) -> None:
    chance = random.Random(5)
    async with local_pipeline(library, streams=STREAMS) as pipeline:
        canaries = await make_canaries(pipeline, chance)
        assert len({round(canary.alone.logprobs[0], 4) for canary in canaries}) == CANARIES

        async def ask(canary: Canary, tokens: int, steps_late: int) -> None:
            for _ in range(steps_late):
                await asyncio.sleep(0)
            said = await say(pipeline.coordinator, canary.prompt, tokens, canary.sampling)
            assert said.ids == canary.alone.ids[:tokens]
            assert said.text == canary.alone.text[:tokens]
            assert said.logprobs == pytest.approx(canary.alone.logprobs[:tokens], abs=NEAR)

        for _ in range(rounds):
            chosen = chance.sample(canaries, STREAMS)
            await asyncio.gather(*(ask(canary, chance.randint(1, 12), chance.randint(0, 40)) for canary in chosen))
        await all_blocks_come_back(pipeline)


async def all_blocks_come_back(pipeline: LocalPipeline) -> None:
    """Fill every cache to the last block with streams that are as long as the context, all at the same time."""
    context = pipeline.coordinator.context_tokens
    assert pipeline.kv_tokens == STREAMS * context
    status = pipeline.coordinator.status()
    assert (status.streams_running, status.streams_waiting) == (0, 0)
    prompts = [[index, *range(60)] for index in range(STREAMS)]
    fillers = [say(pipeline.coordinator, prompt, context - len(prompt), Sampling()) for prompt in prompts]
    assert [len(said.ids) for said in await asyncio.gather(*fillers)] == [context - 61] * STREAMS


async def test_eight_streams_keep_their_secrets(library: Path) -> None:
    await keep_secrets(library, rounds=8)


@pytest.mark.slow
@pytest.mark.timeout(3600)
async def test_eight_streams_keep_their_secrets_for_500_rounds(library: Path) -> None:
    await keep_secrets(library, rounds=500)


def body(content: str, tokens: int) -> dict[str, Any]:
    messages = [{"role": "user", "content": content}]
    return {"model": "toy", "messages": messages, "max_tokens": tokens, "temperature": 0, "stream": True}


async def read_whole(url: str, content: str, tokens: int) -> str:
    """Stream an answer to its end."""
    parts: list[str] = []
    headers = {"Authorization": f"Bearer {CHAT_KEY}"}
    async with (
        httpx2.AsyncClient(trust_env=False, timeout=60) as client,
        client.stream("POST", f"{url}/v1/chat/completions", json=body(content, tokens), headers=headers) as response,
    ):
        async for line in response.aiter_lines():
            if line.startswith("data: {"):
                event = msgspec.json.decode(line.removeprefix("data: "))
                assert "error" not in event, event
                parts.append(event["choices"][0]["delta"].get("content", ""))
    return "".join(parts)


async def hang_up(url: str, content: str, chance: random.Random) -> None:
    """Ask for a stream and leave at some moment: at once, with half a request sent, or after some of the answer."""
    host, port = url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    data = msgspec.json.encode(body(content, 100))
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {CHAT_KEY}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    )
    request = head.encode() + data
    when = chance.random()
    writer.write(request[: chance.randrange(len(request))] if when < 0.1 else request)
    if when >= 0.2:
        for _ in range(chance.randint(1, 12)):
            if not await reader.read(chance.randint(1, 600)):
                break
    if chance.random() < 0.5:
        writer.transport.abort()
    else:
        writer.close()


async def survive_disconnects(library: Path, count: int) -> None:
    chance = random.Random(9)
    async with (
        local_pipeline(library, streams=STREAMS) as pipeline,
        serving(chat_app(pipeline.coordinator)) as url,
    ):
        contents = ["".join(chance.choices(ALPHABET, k=20)) for _ in range(4)]
        alone = [(await say(pipeline.coordinator, CODEC.encode_text(text), 100, Sampling())).text for text in contents]
        assert len(set(alone)) == len(contents)
        left = asyncio.Event()
        answers = [0] * len(contents)

        async def keep_asking(index: int) -> None:
            while not left.is_set() or not answers[index]:
                assert await read_whole(url, contents[index], 100) == alone[index]
                answers[index] += 1

        async def leave_often() -> None:
            for _ in range(count):
                await hang_up(url, "".join(chance.choices(ALPHABET, k=chance.randint(1, 27))), chance)
            left.set()

        async with asyncio.TaskGroup() as group:
            group.create_task(leave_often())
            for index in range(len(contents)):
                group.create_task(keep_asking(index))
        async with asyncio.timeout(PATIENCE_S):
            while pipeline.coordinator.status().streams_running + pipeline.coordinator.status().streams_waiting:
                await asyncio.sleep(0.01)
        await all_blocks_come_back(pipeline)
        endings = pipeline.coordinator.status().endings
        assert endings["cancelled"] > count // 2
        assert "error" not in endings


async def test_clients_that_hang_up_disturb_nobody_and_leave_nothing(library: Path) -> None:
    await survive_disconnects(library, count=25)


@pytest.mark.slow
@pytest.mark.timeout(3600)
async def test_a_thousand_clients_that_hang_up_disturb_nobody_and_leave_nothing(library: Path) -> None:
    await survive_disconnects(library, count=1000)
