"""A real API server on loopback in front of a scripted model, for tests of the HTTP surface."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec
from starlette.types import ASGIApp

from console.api.app import RequestCounts, build_app
from console.api.auth import Gate, KeyRing
from console.api.models import ServedModel
from console.api.openai.routes import OpenAIRoutes
from console.api.quotas import Quotas
from console.api.server import ApiServer
from console.errors import ModelUnavailable
from console.pipeline.dialects import PLAIN
from console.pipeline.errors import PromptError
from console.pipeline.types import Event, Finished, GenerationRequest, Generator, Text, Timings, Usage
from console.registry.records import Principal

CHAT_KEY, ADMIN_KEY = "chat-secret", "admin-secret"
Step = Event | float | asyncio.Event | Exception
"""What the scripted model does next: say something, sleep (seconds), wait for the test, or break."""


def finished(prompt: int = 5, completion: int = 2, *, reason: str = "stop") -> Finished:
    timings = Timings(queue_ms=0.5, first_token_ms=10.0, total_ms=20.0)
    return msgspec.structs.replace(Finished("stop", Usage(prompt, completion), timings), reason=reason)


def says(*pieces: str) -> list[Step]:
    return [*(Text(piece, [index]) for index, piece in enumerate(pieces)), finished(completion=len(pieces))]


class ScriptedModel:
    """Answers every request with the same script; a token is a character."""

    def __init__(self, script: Sequence[Step], *, model_id: str = "small", context_tokens: int = 100) -> None:
        self.script = list(script)
        self.model_id = model_id
        self.context_tokens = context_tokens
        self.vocab_size = 0x110000
        self.requests: list[GenerationRequest] = []
        self.messages: list[dict[str, Any]] = []
        self.tools: list[dict[str, Any]] | None = None
        self.dialect = PLAIN
        self.closed = asyncio.Event()

    def encode_chat(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None = None) -> list[int]:
        self.messages, self.tools = messages, tools
        text = "".join(message["content"] for message in messages)
        if "\x00" in text:
            raise PromptError("The chat template does not take this conversation; change the roles.")
        return self.encode_text(text)

    def encode_text(self, text: str) -> list[int]:
        return [ord(character) for character in text]

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(map(chr, ids))

    def token_bytes(self, token: int) -> bytes:
        return chr(token).encode()

    async def generate(self, request: GenerationRequest) -> AsyncIterator[Event]:
        self.requests.append(request)
        try:
            for step in self.script:
                if isinstance(step, asyncio.Event):
                    await step.wait()
                elif isinstance(step, float):
                    await asyncio.sleep(step)
                elif isinstance(step, Exception):
                    raise step
                else:
                    yield step
        finally:
            self.closed.set()


class Models:
    """A directory of scripted models; ids in `unavailable` are known but not ready."""

    def __init__(self, *models: Generator, unavailable: Sequence[str] = ()) -> None:
        self._models = {model.model_id: model for model in models}
        self._unavailable = unavailable

    def served(self) -> list[ServedModel]:
        return [
            ServedModel(model.model_id, 1_700_000_000, model.context_tokens, ready=True)
            for model in self._models.values()
        ]

    def generator(self, model_id: str) -> Generator:
        if model_id in self._unavailable:
            raise ModelUnavailable("The model is being loaded; try again soon.", retry_after_s=7)
        return self._models[model_id]


class Keys:
    """Two keys, one per scope, or those given."""

    def __init__(self, **principals: Principal) -> None:
        self._principals = principals or {
            CHAT_KEY: Principal("chat", "", frozenset({"chat"})),
            ADMIN_KEY: Principal("admin", "", frozenset({"admin"})),
        }

    def authenticate(self, token: str) -> Principal | None:
        return self._principals.get(token)


class Counted:
    """Tokens by key, in memory; the day ends in 1000 s."""

    def __init__(self, **used: int) -> None:
        self.used = Counter(used)

    def add(self, key_id: str, tokens: int) -> None:
        self.used[key_id] += tokens

    def today(self, key_id: str) -> int:
        return self.used[key_id]

    def seconds_left(self) -> int:
        return 1000


@contextlib.asynccontextmanager
async def serving(app: ASGIApp) -> AsyncIterator[str]:
    """Serve an ASGI app on a free loopback port; yields the base URL."""
    server = ApiServer(app, host="127.0.0.1", port=0)
    await server.start()
    try:
        yield server.url
    finally:
        await server.stop()


def chat_app(
    *models: Generator,
    unavailable: Sequence[str] = (),
    keys: KeyRing | None = None,
    counted: Counted | None = None,
    cors_origins: Sequence[str] = (),
    counts: RequestCounts | None = None,
) -> ASGIApp:
    gate, quotas = Gate(keys or Keys()), Quotas(counted or Counted())
    routes = OpenAIRoutes(Models(*models, unavailable=unavailable), gate, quotas).routes()
    return build_app(routes, cors_origins=cors_origins, counts=counts)
