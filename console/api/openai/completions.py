"""/v1/completions, the legacy endpoint: text goes on where a prompt ends, without a chat template."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec

from console.api.openai.bodies import least, token_text
from console.api.openai.chunks import ChoiceStream
from console.api.openai.parameters import (
    MAX_ANSWERS,
    UNSUPPORTED,
    IgnoredFields,
    Refusals,
    TextRequest,
    is_empty,
    parse,
    unsupported,
    wrong,
)
from console.api.openai.shapes import Answered, Identity, UsageBody, usage_body
from console.pipeline.types import FinishReason, Generator, Text, Timings, TokenLogprobs

DEFAULT_TOKENS = 16
"""OpenAI's own default, which clients of this endpoint know."""
MAX_LOGPROBS = 5

TokenId = Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]


class CompletionRequest(TextRequest, frozen=True, kw_only=True):
    """The supported parameters. `prompt` is text, token ids, or a list of either."""

    prompt: str | Annotated[list[str | TokenId | list[TokenId]], msgspec.Meta(min_length=1)]
    logprobs: Annotated[int, msgspec.Meta(ge=0, le=MAX_LOGPROBS)] | None = None
    best_of: int | None = None

    @property
    def wanted_tokens(self) -> int:
        """How many tokens an answer has at most."""
        return self.max_tokens or DEFAULT_TOKENS

    @property
    def wanted_logprobs(self) -> int:
        """How many likeliest tokens to tell beside each sampled one; -1: no log-probabilities at all."""
        return -1 if self.logprobs is None else self.logprobs

    @property
    def prompts(self) -> list[str | list[int]]:
        """Every prompt, as text or token ids."""
        if isinstance(self.prompt, str):
            return [self.prompt]
        ids = [item for item in self.prompt if isinstance(item, int)]
        return [ids] if ids else [item for item in self.prompt if not isinstance(item, int)]

    def encode(self, generator: Generator) -> list[list[int]]:
        """Tokenize what is text. Raises ApiError 400: one wrong prompt must not be found when others are answered."""
        encoded = [generator.encode_text(prompt) if isinstance(prompt, str) else prompt for prompt in self.prompts]
        if not all(encoded):
            raise wrong("prompt", "The parameter 'prompt' is wrong: a prompt is empty.")
        if max(map(max, encoded)) >= generator.vocab_size:
            raise wrong("prompt", f"The parameter 'prompt' holds a token id outside of 0..{generator.vocab_size - 1}.")
        return encoded


COMPLETION_REFUSALS: Refusals = UNSUPPORTED | {"echo": is_empty, "suffix": is_empty}


def parse_completion(raw: dict[str, Any], ignored: IgnoredFields) -> CompletionRequest:
    """Check a request. Raises ApiError 400 naming the parameter."""
    request = parse(raw, CompletionRequest, COMPLETION_REFUSALS, ignored)
    if request.best_of not in {None, request.answers}:
        raise unsupported("best_of")
    if not isinstance(request.prompt, str) and len({type(item) for item in request.prompt}) > 1:
        raise wrong("prompt", "The parameter 'prompt' is wrong: it mixes texts, token ids and lists of them.")
    if len(request.prompts) * request.answers > MAX_ANSWERS:
        message = f"The parameter 'prompt' asks for more than {MAX_ANSWERS} answers at once; send several requests."
        raise wrong("prompt", message)
    return request


class CompletionLogprobs(msgspec.Struct, frozen=True):
    """The tokens of an answer, and where in its text each begins (in characters)."""

    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]] | None
    text_offset: list[int]


class CompletionChoice(msgspec.Struct, frozen=True):
    """One answer."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: FinishReason


class CompletionBody(msgspec.Struct, frozen=True, kw_only=True):
    """A whole answer of /v1/completions. `timings` (ms, of the first answer) is an extension."""

    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: UsageBody
    timings: Timings


class _Logprobs:
    """Writes the log-probabilities of one answer as its pieces come."""

    def __init__(self, top: int) -> None:
        self._top = top
        self._offset = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def of(self, entries: Sequence[TokenLogprobs]) -> CompletionLogprobs:
        """Return what stands beside the next piece."""
        offsets = []
        for entry in entries:
            offsets.append(self._offset)
            self._offset += len(self._decoder.decode(entry.chosen.data))
        top = [{token_text(token): least(token) for token in [*entry.top, entry.chosen]} for entry in entries]
        return CompletionLogprobs(
            [token_text(entry.chosen) for entry in entries],
            [least(entry.chosen) for entry in entries],
            top if self._top else None,
            offsets,
        )


def completion_body(identity: Identity, asked: CompletionRequest, answered: Sequence[Answered]) -> CompletionBody:
    """Return the body of whole answers to every prompt, those of one prompt one after the other."""
    top = asked.wanted_logprobs
    choices = [
        CompletionChoice(
            place, answer.text, _Logprobs(top).of(answer.logprobs) if top >= 0 else None, answer.finished.reason
        )
        for place, answer in enumerate(answered)
    ]
    return CompletionBody(
        id=identity.answer_id,
        created=identity.created_s,
        model=identity.model_id,
        choices=choices,
        usage=usage_body([answer.finished.usage for answer in answered], asked.answers),
        timings=answered[0].finished.timings,
    )


class CompletionWriter(ChoiceStream):
    """Renders the events of a stream: what a whole answer has, piece by piece."""

    def __init__(self, identity: Identity, asked: CompletionRequest) -> None:
        super().__init__(
            identity, "text_completion", prompts=len(asked.prompts), answers=asked.answers,
            include_usage=asked.include_usage, include_details=asked.include_details,
        )  # fmt: skip
        self._logprobs = [_Logprobs(asked.wanted_logprobs) for _ in range(self._count)]

    def _text(self, place: int, event: Text) -> bytes:
        if not (event.text or event.logprobs):
            return b""
        logprobs = self._logprobs[place].of(event.logprobs) if event.logprobs else None
        return self._choice(place, event.text, logprobs, None) + self._usage_null + b"}\n\n"

    def _last(self, place: int, reason: str) -> bytes:
        return self._choice(place, "", None, reason)

    def _choice(self, place: int, text: str, logprobs: CompletionLogprobs | None, reason: str | None) -> bytes:
        choice = {"index": place, "text": text, "logprobs": logprobs, "finish_reason": reason}
        return self._head + self._encoder.encode(choice) + b"]"
