"""Clients of others, played: each asks and reads as that program does, and fails where that program would."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import openai
import pytest

from console.pipeline.types import Failed, ScoredToken, Text, TokenLogprobs
from tests.support.api import CHAT_KEY, ScriptedModel, chat_app, finished, says, serving
from tests.support.patience import PATIENCE_S

HELLO: list[dict[str, Any]] = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hello"}]


@pytest.fixture
def model() -> ScriptedModel:
    return ScriptedModel(says("Good", " day"))


@pytest.fixture
async def url(model: ScriptedModel) -> AsyncIterator[str]:
    async with serving(chat_app(model, unavailable=["loading"])) as url:
        yield f"{url}/v1"


class OpenWebUI:
    """A web interface with a base URL and a key: lists the models, then relays the stream line by line."""

    def __init__(self, url: str, key: str = CHAT_KEY) -> None:
        self._http = httpx2.AsyncClient(headers={"Authorization": f"Bearer {key}"}, timeout=PATIENCE_S)
        self._url = url.rstrip("/")

    async def models(self) -> list[str]:
        listed = (await self._http.get(f"{self._url}/models")).json()
        return [model["id"] for model in listed["data"] if model["object"] == "model"]

    async def chat(self, model: str) -> tuple[str, dict[str, Any], str]:
        """Return the text, the usage and the reason; raise RuntimeError with the server's sentence."""
        body = {"model": model, "messages": HELLO, "stream": True, "stream_options": {"include_usage": True}}
        usage: dict[str, Any] = {}
        text = reason = ""
        async with self._http.stream("POST", f"{self._url}/chat/completions", json=body) as answer:
            if "text/event-stream" not in answer.headers.get("Content-Type", ""):
                await answer.aread()
                raise RuntimeError(answer.json()["error"]["message"])
            async for line in answer.aiter_lines():
                if not line.startswith("data:") or line == "data: [DONE]":
                    continue
                data = json.loads(line.removeprefix("data:"))
                if "error" in data:
                    raise RuntimeError(data["error"]["message"])
                usage = data.get("usage") or usage
                for choice in data["choices"][:1]:
                    text += choice["delta"].get("content") or ""
                    reason = choice["finish_reason"] or reason
        return text, usage, reason

    async def title(self, model: str) -> str:
        """Ask for a chat's title, whole."""
        body = {"model": model, "messages": HELLO, "stream": False, "max_completion_tokens": 1000}
        answer = await self._http.post(f"{self._url}/chat/completions", json=body)
        return str(answer.json()["choices"][0]["message"]["content"])

    async def close(self) -> None:
        await self._http.aclose()


@pytest.fixture
async def web(url: str) -> AsyncIterator[OpenWebUI]:
    web = OpenWebUI(url)
    yield web
    await web.close()


async def test_open_webui_lists_models_chats_and_titles(web: OpenWebUI) -> None:
    (name,) = await web.models()
    text, usage, reason = await web.chat(name)
    assert (text, usage["total_tokens"], reason) == ("Good day", 7, "stop")
    assert await web.title(name) == "Good day"


async def test_open_webui_shows_the_sentence_of_an_error_early_or_late(web: OpenWebUI, model: ScriptedModel) -> None:
    with pytest.raises(RuntimeError, match="being loaded"):
        await web.chat("loading")
    model.script = [Text("Good", [1]), Failed("stage_lost", "A PC left; send the request again.")]
    with pytest.raises(RuntimeError, match="A PC left"):
        await web.chat("small")


async def test_open_webui_s_stop_button_frees_the_place(url: str, model: ScriptedModel) -> None:
    model.script = [Text("Good", [1]), asyncio.Event(), finished()]
    web = OpenWebUI(url)
    chatting = asyncio.create_task(web.chat("small"))
    while not model.requests:
        await asyncio.sleep(0.001)
    chatting.cancel()
    await asyncio.gather(chatting, return_exceptions=True)
    await asyncio.wait_for(model.closed.wait(), PATIENCE_S)
    await web.close()


class LangChain:
    """A chat model over the openai SDK: reads plain dictionaries, strictly where that library is strict."""

    def __init__(self, url: str) -> None:
        self.client = openai.AsyncOpenAI(base_url=url, api_key=CHAT_KEY, max_retries=2, timeout=PATIENCE_S)
        self._create: Any = self.client.chat.completions.create

    async def invoke(self, **parameters: Any) -> list[dict[str, Any]]:
        answer = await self._create(**{"model": "small", "messages": HELLO} | parameters)
        body = answer.model_dump()
        if body.get("error"):
            raise ValueError(body["error"])
        if body["choices"] is None:
            raise TypeError("choices is null")
        return [
            {
                "content": choice["message"]["content"],
                "reason": choice["finish_reason"],
                "logprobs": choice["logprobs"],
                "usage": body["usage"]["total_tokens"],
            }
            for choice in body["choices"]
        ]

    async def stream(self, **parameters: Any) -> dict[str, Any]:
        asked = {"model": "small", "messages": HELLO, "stream": True, "stream_options": {"include_usage": True}}
        role, content, ids, reasons, usage = "", "", set(), [], {}
        async for event in await self._create(**asked | parameters):
            chunk = event.model_dump()
            if chunk["choices"] is None:
                raise TypeError("choices is null")
            ids.add(chunk["id"])
            if not chunk["choices"]:
                cached = chunk["usage"]["prompt_tokens_details"]["cached_tokens"]
                usage = {"input": chunk["usage"]["prompt_tokens"], "cached": cached}
                continue
            delta = chunk["choices"][0]["delta"]
            role = delta["role"] or role
            content += delta["content"] or ""
            reasons += [chunk["choices"][0]["finish_reason"]] if chunk["choices"][0]["finish_reason"] else []
        assert len(ids) == len(reasons) == 1
        return {"role": role, "content": content, "reason": reasons[0], "usage": usage}


@pytest.fixture
async def chain(url: str) -> AsyncIterator[LangChain]:
    chain = LangChain(url)
    yield chain
    await chain.client.close()


async def test_langchain_invokes_batches_and_streams(chain: LangChain) -> None:
    whole = {"content": "Good day", "reason": "stop", "logprobs": None, "usage": 7}
    assert await chain.invoke(temperature=0.7) == [whole]
    assert [answer["content"] for answer in await chain.invoke(n=2)] == ["Good day"] * 2
    assert await asyncio.gather(*(chain.invoke() for _ in range(8))) == [[whole]] * 8
    assert await chain.stream() == {
        "role": "assistant", "content": "Good day", "reason": "stop", "usage": {"input": 5, "cached": 0},
    }  # fmt: skip


async def test_langchain_reads_logprobs(chain: LangChain, model: ScriptedModel) -> None:
    entry = TokenLogprobs(ScoredToken(1, b"Hi", -0.5), [ScoredToken(1, b"Hi", -0.5)])
    model.script = [Text("Hi", [1], [entry]), finished()]
    (answer,) = await chain.invoke(logprobs=True, top_logprobs=1)
    assert answer["logprobs"]["content"][0]["top_logprobs"][0]["logprob"] == -0.5


async def test_langchain_never_takes_a_cut_answer_for_a_whole_one(chain: LangChain, model: ScriptedModel) -> None:
    model.script = [Text("Good", [1]), Failed("stage_lost", "A PC left; send the request again.", retryable=False)]
    with pytest.raises(openai.APIError):
        await chain.stream()
    with pytest.raises(openai.InternalServerError):
        await chain.invoke()
