"""The routes of /v1: the model list and chat completions."""

from __future__ import annotations

import secrets
import time

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from console.api.auth import Gate
from console.api.http import ApiError, json_response, parse_object, read_body
from console.api.models import ModelDirectory, ServedModel
from console.api.openai.answers import StreamedAnswer, WholeAnswer
from console.api.openai.requests import ChatRequest, parse_chat
from console.api.openai.responses import ChunkWriter
from console.api.quotas import Quotas
from console.errors import ModelUnavailable
from console.pipeline.errors import PromptError
from console.pipeline.types import GenerationRequest, Generator
from console.registry.records import Principal


class OpenAIRoutes:
    """Serves /v1 from the deployed models."""

    def __init__(self, models: ModelDirectory, gate: Gate, quotas: Quotas) -> None:
        self._models = models
        self._gate = gate
        self._quotas = quotas

    def routes(self) -> list[Route]:
        """List the routes."""
        return [
            Route("/v1/models", self.list_models),
            Route("/v1/models/{model_id:path}", self.get_model),
            Route("/v1/chat/completions", self.chat, methods=["POST"]),
        ]

    async def list_models(self, request: Request) -> Response:
        principal = await self._gate.require(request, "chat")
        served = [model for model in self._models.served() if self._quotas.may_use(principal, model.model_id)]
        return json_response({"object": "list", "data": [_card(model) for model in served]})

    async def get_model(self, request: Request) -> Response:
        principal = await self._gate.require(request, "chat")
        wanted = request.path_params["model_id"]
        self._check_model(principal, wanted)
        for model in self._models.served():
            if model.model_id == wanted:
                return json_response(_card(model))
        raise _not_found(wanted)

    async def chat(self, request: Request) -> Response:
        principal = await self._gate.require(request, "chat")
        asked = parse_chat(parse_object(await read_body(request)))
        self._check_model(principal, asked.model)
        # Refused before the prompt is tokenized: a refusal must cost next to nothing.
        self._quotas.check(principal)
        generator = self._generator(asked.model)
        generation = _generation(asked, generator, principal)
        answer_id, created_s = f"chatcmpl-{secrets.token_hex(12)}", int(time.time())
        events = self._quotas.metered(principal, len(generation.prompt_ids), generator.generate(generation))
        if not asked.stream:
            return WholeAnswer(events, answer_id, created_s, generator.model_id, logprobs=bool(asked.logprobs))
        options = asked.stream_options
        include_usage = options is not None and bool(options.include_usage)
        include_details = options is not None and bool(options.include_details)
        writer = ChunkWriter(
            answer_id, created_s, generator.model_id, include_usage=include_usage, include_details=include_details
        )
        return StreamedAnswer(events, writer)

    def _check_model(self, principal: Principal, model_id: str) -> None:
        if not self._quotas.may_use(principal, model_id):
            message = f"This key may not use the model {model_id[:200]!r}; GET /v1/models lists those it may."
            raise ApiError(403, message, param="model", code="model_not_allowed", should_retry=False)

    def _generator(self, model_id: str) -> Generator:
        try:
            return self._models.generator(model_id)
        except KeyError:
            raise _not_found(model_id) from None
        except ModelUnavailable as error:
            raise ApiError(
                503, str(error), code=error.code, retry_after_s=error.retry_after_s, should_retry=True
            ) from None


def _generation(asked: ChatRequest, generator: Generator, principal: Principal) -> GenerationRequest:
    """Tokenize and check the length. Raises ApiError 400."""
    try:
        prompt_ids = generator.encode_chat(asked.plain_messages())
    except PromptError as error:
        raise ApiError(400, str(error), param="messages", code="invalid_prompt") from None
    room = generator.context_tokens - len(prompt_ids)
    if room < 1:
        message = (
            f"The prompt has {len(prompt_ids)} tokens and this model's context is {generator.context_tokens} tokens; "
            "shorten the messages."
        )
        raise ApiError(400, message, param="messages", code="context_length_exceeded", should_retry=False)
    return GenerationRequest(
        prompt_ids=prompt_ids,
        max_tokens=min(room, asked.wanted_tokens or room),
        sampling=asked.sampling(),
        stop=asked.stops,
        ignore_eos=bool(asked.ignore_eos),
        key_id=principal.key_id,
    )


def _card(model: ServedModel) -> dict[str, object]:
    """`ready` and `context_tokens` are extensions."""
    card = {"id": model.model_id, "object": "model", "created": model.created_s, "owned_by": "fallow"}
    return card | {"ready": model.ready, "context_tokens": model.context_tokens}


def _not_found(model_id: str) -> ApiError:
    message = f"The model {model_id[:200]!r} is not deployed here; GET /v1/models lists those that are."
    return ApiError(404, message, param="model", code="model_not_found", should_retry=False)
