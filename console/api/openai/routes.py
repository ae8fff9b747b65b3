"""The routes of /v1 that answer with text, and the model list."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from console.api.auth import Gate
from console.api.http import ApiError, json_response, parse_object, read_body
from console.api.models import ModelDirectory, ServedModel
from console.api.openai.answers import StreamedAnswer, WholeAnswer
from console.api.openai.bodies import ChunkWriter, chat_body
from console.api.openai.cancelling import RunningRequests
from console.api.openai.grammars import answer_grammar, check_grammar
from console.api.openai.parameters import IgnoredFields, TextRequest
from console.api.openai.requests import ChatRequest, parse_chat
from console.api.openai.several import answer_all
from console.api.openai.shapes import Answered, EventWriter, Identity
from console.api.openai.speech import SpeechReader
from console.api.openai.tools import CallPlan, explained, native
from console.api.quotas import Quotas
from console.errors import ModelUnavailable
from console.pipeline.errors import ContextExceeded
from console.pipeline.types import GenerationRequest, Generator
from console.registry.records import Principal


class OpenAIRoutes:
    """Serves /v1 from the deployed models."""

    def __init__(self, models: ModelDirectory, gate: Gate, quotas: Quotas) -> None:
        self._models = models
        self._gate = gate
        self._quotas = quotas
        self._running = RunningRequests()
        self._ignored = IgnoredFields()

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
        asked = parse_chat(parse_object(await read_body(request)), self._ignored)
        generator = self._admit(principal, asked, asked.answers)
        dialect, calls = generator.dialect, asked.calls
        grammar = answer_grammar(asked.schema, calls, dialect)
        await check_grammar(grammar, "tools" if calls.tools else "response_format")
        prompt = _prompt(asked, calls, generator)
        reader = partial(
            SpeechReader, dialect.calls if calls.tools else None, thinks=dialect.thinks, opened=dialect.opened
        )
        identity = Identity.new("chatcmpl-", generator.model_id)
        return self._answer(
            request, asked, generator, [prompt], identity,
            body=partial(chat_body, identity, reader=reader, logprobs=bool(asked.logprobs)),
            writer=lambda: ChunkWriter(
                identity, answers=asked.answers, include_usage=asked.include_usage,
                include_details=asked.include_details, reader=reader,
            ),
            grammar=grammar,
        )  # fmt: skip

    def _admit(self, principal: Principal, asked: TextRequest, answers: int) -> Generator:
        """Return the model that answers, if this key may ask it for so many answers now. Raises ApiError."""
        self._check_model(principal, asked.model)
        # Refused before the prompt is tokenized: a refusal must cost next to nothing.
        self._quotas.check(principal, answers)
        return self._generator(asked.model)

    def _answer(
        self,
        request: Request,
        asked: TextRequest,
        generator: Generator,
        prompts: Sequence[list[int]],
        identity: Identity,
        *,
        body: Callable[[Sequence[Answered]], object],
        writer: Callable[[], EventWriter],
        grammar: str = "",
    ) -> Response:
        """Begin `asked.answers` answers to each prompt, whole (`body`) or streamed (`writer`). Raises ApiError 400.

        `grammar` is what each of them must be.
        """
        principal: Principal = request.state.principal
        generations = [
            _generation(asked, generator, prompt, principal, place, grammar=grammar)
            for prompt in prompts
            for place in range(asked.answers)
        ]
        events = self._quotas.metered(
            principal, sum(map(len, prompts)), answer_all(generator, generations, asked.answers), len(generations)
        )
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


def _prompt(asked: ChatRequest, calls: CallPlan, generator: Generator) -> list[int]:
    """Show the model the conversation and its tools. Raises ApiError 400 or PromptError."""
    messages = asked.plain_messages()
    if generator.dialect.takes_tools:
        return generator.encode_chat(messages, native(calls.tools) or None)
    return generator.encode_chat(explained(messages, calls.tools))


def _generation(
    asked: TextRequest, generator: Generator, prompt: list[int], principal: Principal, place: int, *, grammar: str
) -> GenerationRequest:
    """Check the length, and say what the answer at `place` of one prompt is. Raises ApiError 400."""
    room = generator.context_tokens - len(prompt)
    if room < 1:
        raise ContextExceeded(len(prompt), generator.context_tokens)
    return GenerationRequest(
        prompt_ids=prompt,
        max_tokens=min(room, asked.wanted_tokens or room),
        sampling=asked.sampling(place, grammar),
        grammar_from="tools" if "\ncalls: " in grammar else "response_format",
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
