"""The routes of /v1 that answer with text, and the model list."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from console.api.auth import Gate
from console.api.http import ApiError, convert, json_response, parse_object, read_body
from console.api.models import ModelCard, ModelDirectory, ModelList
from console.api.openai.answers import StreamedAnswer, WholeAnswer, wanted_by
from console.api.openai.bodies import ChatBody, ChunkWriter, chat_body
from console.api.openai.cancelling import CancelBody, RunningRequests
from console.api.openai.completions import (
    CompletionBody,
    CompletionRequest,
    CompletionWriter,
    completion_body,
    parse_completion,
)
from console.api.openai.grammars import answer_grammar, check_grammar
from console.api.openai.openapi import Endpoint, document
from console.api.openai.parameters import AnyRequest, IgnoredFields
from console.api.openai.prompts import Tokenizing
from console.api.openai.requests import ChatRequest, parse_chat
from console.api.openai.response_bodies import ResponseBody, ResponseWriter, whole_response
from console.api.openai.response_requests import ResponsesRequest, parse_responses
from console.api.openai.several import answer_all
from console.api.openai.shapes import Answered, EventWriter, Identity
from console.api.openai.speech import SpeechReader
from console.api.openai.tokens import (
    DetokenizeBody,
    DetokenizeRequest,
    TokenizeBody,
    TokenizeRequest,
    detokenized,
    parse_tokenize,
    tokenized,
)
from console.api.openai.tools import CallPlan, explained, native
from console.api.quotas import Quotas
from console.errors import ModelUnavailable
from console.pipeline.errors import ContextExceeded
from console.pipeline.types import GenerationRequest, Generator
from console.registry.records import Principal
from console.telemetry.tracing import NO_TRACER, TracedRequest, Tracer, context_of, traced

T = TypeVar("T")


class OpenAIRoutes:
    """Serves /v1 from the deployed models."""

    def __init__(self, models: ModelDirectory, gate: Gate, quotas: Quotas, tracer: Tracer = NO_TRACER) -> None:
        self._models = models
        self._gate = gate
        self._quotas = quotas
        self._tracer = tracer
        self._running = RunningRequests()
        self._tokenizing = Tokenizing()
        self._ignored = IgnoredFields()

    def routes(self) -> list[Route]:
        """List the routes."""
        return [*(endpoint.route() for endpoint in self.endpoints()), Route("/openapi.json", self.describe)]

    def endpoints(self) -> list[Endpoint]:
        """List what is served, with what travels there."""
        return [
            Endpoint("GET", "/v1/models", self.list_models, "List the deployed models.", answer=ModelList),
            Endpoint("GET", "/v1/models/{model_id:path}", self.get_model, "Find a model.", answer=ModelCard),
            Endpoint(
                "POST", "/v1/chat/completions", self.chat, "Answer a conversation.", ChatRequest, ChatBody, streams=True
            ),
            Endpoint(
                "POST", "/v1/completions", self.complete, "Go on with a text.", CompletionRequest, CompletionBody,
                streams=True,
            ),
            Endpoint(
                "POST", "/v1/responses", self.respond, "Answer a conversation in text.", ResponsesRequest, ResponseBody,
                streams=True,
            ),
            Endpoint("POST", "/v1/embeddings", self.embed, "Refused: no model for embeddings can be deployed yet."),
            Endpoint(
                "POST", "/v1/requests/{request_id}/cancel", self.cancel,
                "Cancel a running request of the same key by its x-request-id or its answer's id.", answer=CancelBody,
            ),
            Endpoint("POST", "/tokenize", self.tokenize, "Make tokens of text.", TokenizeRequest, TokenizeBody),
            Endpoint("POST", "/detokenize", self.detokenize, "And back.", DetokenizeRequest, DetokenizeBody),
        ]  # fmt: skip

    async def describe(self, request: Request) -> Response:
        # No secret, and the same everywhere: tools that read it know no key.
        return Response(self._document, media_type="application/json")

    @cached_property
    def _document(self) -> bytes:
        return msgspec.json.encode(document(self.endpoints()))

    async def list_models(self, request: Request) -> Response:
        principal = await self._gate.require(request, "chat")
        served = [model for model in self._models.served() if self._quotas.may_use(principal, model.model_id)]
        return json_response(ModelList([ModelCard.of(model) for model in served]))

    async def get_model(self, request: Request) -> Response:
        principal = await self._gate.require(request, "chat")
        wanted = request.path_params["model_id"]
        self._check_model(principal, wanted)
        for model in self._models.served():
            if model.model_id == wanted:
                return json_response(ModelCard.of(model))
        raise _not_found(wanted)

    async def chat(self, request: Request) -> Response:
        await self._gate.require(request, "chat")
        asked = parse_chat(await _read(request), self._ignored)
        generator = await self._admit(request, asked.model, asked.answers)
        dialect, calls = generator.dialect, asked.calls
        grammar = answer_grammar(asked.schema, calls, dialect)
        param = "tools" if calls.tools else "response_format"
        await check_grammar(grammar, param)
        identity = Identity.new("chatcmpl-", generator.model_id)
        prompt = await self._tokens(request, identity, partial(_prompt, asked, calls, generator))
        reader = partial(
            SpeechReader, dialect.calls if calls.tools else None, thinks=dialect.thinks, opened=dialect.opened
        )
        return self._answer(
            request, asked, generator, [prompt], identity,
            body=partial(chat_body, identity, reader=reader, logprobs=bool(asked.logprobs)),
            writer=lambda: ChunkWriter(
                identity, answers=asked.answers, include_usage=asked.include_usage,
                include_details=asked.include_details, reader=reader,
            ),
            grammar=grammar, grammar_from=param,
        )  # fmt: skip

    async def complete(self, request: Request) -> Response:
        await self._gate.require(request, "chat")
        asked = parse_completion(await _read(request), self._ignored)
        request.state.prompt_param = "prompt"
        generator = await self._admit(request, asked.model, len(asked.prompts) * asked.answers)
        identity = Identity.new("cmpl-", generator.model_id)
        prompts = await self._tokens(request, identity, partial(asked.encode, generator))
        return self._answer(
            request, asked, generator, prompts, identity,
            body=partial(completion_body, identity, asked),
            writer=lambda: CompletionWriter(identity, asked),
        )  # fmt: skip

    async def respond(self, request: Request) -> Response:
        await self._gate.require(request, "chat")
        asked = parse_responses(await _read(request), self._ignored)
        request.state.prompt_param = "input"
        generator = await self._admit(request, asked.model, 1)
        identity = Identity.new("resp_", generator.model_id)
        prompt = await self._tokens(request, identity, lambda: generator.encode_chat(asked.plain_messages()))
        reader = partial(SpeechReader, thinks=generator.dialect.thinks, opened=generator.dialect.opened)
        return self._answer(
            request, asked, generator, [prompt], identity,
            body=partial(whole_response, identity, asked, reader=reader),
            writer=lambda: ResponseWriter(identity, asked, reader()),
        )  # fmt: skip

    async def embed(self, request: Request) -> Response:
        await self._gate.require(request, "chat")
        message = "No model for embeddings can be deployed here yet; GET /v1/models lists those that answer with text."
        raise ApiError(404, message, param="model", code="no_embedding_model", should_retry=False)

    async def cancel(self, request: Request) -> Response:
        principal = await self._gate.require(request, "chat")
        name = request.path_params["request_id"]
        if not self._running.cancel(principal.key_id, name):
            message = f"No request {name[:200]!r} of this key is running here; it may have ended."
            raise ApiError(404, message, code="request_not_found", should_retry=False)
        return json_response(CancelBody(name))

    async def tokenize(self, request: Request) -> Response:
        principal = await self._gate.require(request, "chat")
        asked = parse_tokenize(await _read(request), self._ignored)
        self._check_model(principal, asked.model)
        generator = self._generator(asked.model)
        context = generator.context_tokens
        return json_response(await self._in_turn(request, lambda: tokenized(asked, generator, context)))

    async def detokenize(self, request: Request) -> Response:
        principal = await self._gate.require(request, "chat")
        asked = convert(await _read(request), DetokenizeRequest)
        self._check_model(principal, asked.model)
        generator = self._generator(asked.model)
        return json_response(await self._in_turn(request, lambda: detokenized(asked, generator)))

    async def _tokens(self, request: Request, identity: Identity, make: Callable[[], T]) -> T:
        """Make a prompt's tokens for as long as somebody wants the answer. Raises ApiError and what `make` raises."""
        names = (identity.answer_id, request.state.request_id)
        with self._running.running(request.state.principal.key_id, names) as cancelled:
            return await wanted_by(request, self._in_turn(request, make), cancelled)

    async def _in_turn(self, request: Request, make: Callable[[], T]) -> T:
        return await self._tokenizing.run(request.state.principal.key_id, request.state.body_bytes, make)

    async def _admit(self, request: Request, model_id: str, answers: int) -> Generator:
        """Return the model that answers, if this key may ask it for so many answers now. Raises ApiError."""
        principal: Principal = request.state.principal
        self._check_model(principal, model_id)
        used_today = await self._quotas.used_today(principal)
        request.state.headers = self._quotas.headers(principal, used_today, answers)
        # Refused before the prompt is tokenized: a refusal must cost next to nothing.
        self._quotas.check(principal, used_today, answers)
        return self._generator(model_id)

    def _answer(
        self,
        request: Request,
        asked: AnyRequest,
        generator: Generator,
        prompts: Sequence[list[int]],
        identity: Identity,
        *,
        body: Callable[[Sequence[Answered]], object],
        writer: Callable[[], EventWriter],
        grammar: str = "",
        grammar_from: str = "",
    ) -> Response:
        """Begin `asked.answers` answers to each prompt, whole (`body`) or streamed (`writer`). Raises ApiError 400.

        `grammar` is what each of them must be, and `grammar_from` the parameter that asked for it.
        """
        principal: Principal = request.state.principal
        trace = self._tracer.new()
        generations = [
            msgspec.structs.replace(
                _generation(asked, generator, prompt, principal, place, grammar=grammar, grammar_from=grammar_from),
                request_id=request.state.request_id,
                trace=trace,
            )
            for prompt in prompts
            for place in range(asked.answers)
        ]
        events = self._quotas.metered(
            principal, sum(map(len, prompts)), answer_all(generator, generations, asked.answers), len(generations)
        )
        if trace:
            told = TracedRequest(
                trace, request.method, request.url.path, request.state.request_id, generator.model_id,
                context_of(request.headers), len(generations),
            )  # fmt: skip
            events = traced(events, self._tracer, told)
        names = (identity.answer_id, request.state.request_id)
        cancellation = partial(self._running.running, principal.key_id, names)
        if asked.stream:
            return StreamedAnswer(events, writer(), cancellation)
        return WholeAnswer(events, body, cancellation, answers=len(generations))

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


async def _read(request: Request) -> dict[str, Any]:
    """Read a JSON object and note its size. Raises ApiError."""
    body = await read_body(request)
    request.state.body_bytes = len(body)
    return parse_object(body)


def _prompt(asked: ChatRequest, calls: CallPlan, generator: Generator) -> list[int]:
    """Show the model the conversation and its tools. Raises ApiError 400 or PromptError."""
    messages = asked.plain_messages()
    if generator.dialect.takes_tools:
        return generator.encode_chat(messages, native(calls.tools) or None)
    return generator.encode_chat(explained(messages, calls.tools))


def _generation(
    asked: AnyRequest,
    generator: Generator,
    prompt: list[int],
    principal: Principal,
    place: int,
    *,
    grammar: str,
    grammar_from: str,
) -> GenerationRequest:
    """Check the length, and say what the answer at `place` of one prompt is. Raises ApiError 400."""
    room = generator.context_tokens - len(prompt)
    if room < 1:
        raise ContextExceeded(len(prompt), generator.context_tokens)
    return GenerationRequest(
        prompt_ids=prompt,
        max_tokens=min(room, asked.wanted_tokens or room),
        sampling=asked.sampling(place, grammar),
        grammar_from=grammar_from,
        stop=asked.stops,
        ignore_eos=asked.past_end,
        key_id=principal.key_id,
    )


def _not_found(model_id: str) -> ApiError:
    message = f"The model {model_id[:200]!r} is not deployed here; GET /v1/models lists those that are."
    return ApiError(404, message, param="model", code="model_not_found", should_retry=False)
