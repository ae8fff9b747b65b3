"""What every request for text has in common: how tokens are sampled, how answers end, and what is refused.

A parameter that would change the answer and is not supported is refused by name, never silently ignored; a value of
it that asks for nothing (`tools: []`) is fine. What is ignored is accepted, and named in the log once.
"""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Callable, Collection
from typing import Annotated, Any, TypeVar

import msgspec

from agent.stage.types import Sampling
from console.api.http import ApiError, convert
from shard_export.library.counts import counted

log = logging.getLogger(__name__)

MAX_STOP_CHARACTERS = 256
MAX_BIASED_TOKENS = 1024
MAX_BIAS = 100.0
MAX_ANSWERS = 32
"""Of one request: they wait in the model's queue like those of several requests."""
MAX_NAMES_TOLD = 256
_SEED_BITS = 64
_TOKEN_ID = re.compile("[0-9]{1,9}")


class StreamOptions(msgspec.Struct, frozen=True):
    """What a stream carries beside text.

    `include_details` is an extension: how far a long prompt is read, in comments, and at the end which PCs answered.
    """

    include_usage: bool | None = None
    include_details: bool | None = None


StopText = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_STOP_CHARACTERS)]
Penalty = Annotated[float, msgspec.Meta(ge=-2, le=2)]
Positive = Annotated[int, msgspec.Meta(ge=1, le=1 << 31)]
Temperature = Annotated[float, msgspec.Meta(ge=0, le=2)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]


class AnyRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What all requests for text have: one answer to each prompt, sampled with temperature 1 unless asked otherwise."""

    model: str
    stream: bool | None = None
    temperature: Temperature | None = None
    top_p: Share | None = None

    @property
    def answers(self) -> int:
        """How many answers to each prompt."""
        return 1

    @property
    def wanted_tokens(self) -> int | None:
        """How many tokens an answer has at most; None: as many as fit."""
        return None

    @property
    def stops(self) -> list[str]:
        """Strings before which an answer ends."""
        return []

    @property
    def past_end(self) -> bool:
        """Whether an answer goes on after the model's end token."""
        return False

    def sampling(self, place: int = 0, grammar: str = "") -> Sampling:
        """Return how the tail samples the answer at `place` of several to one prompt; `grammar` is what it must be."""
        temperature = 1.0 if self.temperature is None else self.temperature
        top_p = 1.0 if self.top_p is None else self.top_p
        if temperature == 0 or top_p == 0:
            return Sampling(grammar=grammar)
        return Sampling(temperature, top_p=top_p, seed=secrets.randbits(_SEED_BITS - 1), grammar=grammar)


class TextRequest(AnyRequest, frozen=True, kw_only=True):
    """The parameters of completions, with or without a chat; ranges are OpenAI's.

    `top_k`, `min_p`, `repetition_penalty` and `ignore_eos` are extensions.
    """

    n: Annotated[int, msgspec.Meta(ge=1, le=MAX_ANSWERS)] | None = None
    stream_options: StreamOptions | None = None
    max_tokens: Positive | None = None
    top_k: Annotated[int, msgspec.Meta(ge=-1, le=1 << 20)] | None = None
    min_p: Share | None = None
    repetition_penalty: Annotated[float, msgspec.Meta(ge=0.01, le=100)] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    logit_bias: dict[str, float] | None = None
    seed: int | None = None
    stop: StopText | Annotated[list[StopText], msgspec.Meta(max_length=4)] | None = None
    ignore_eos: bool | None = None

    @property
    def answers(self) -> int:
        """How many answers to each prompt."""
        return self.n or 1

    @property
    def wanted_tokens(self) -> int | None:
        """How many tokens an answer has at most; None: as many as fit."""
        return self.max_tokens

    @property
    def wanted_logprobs(self) -> int:
        """How many likeliest tokens to tell beside each sampled one; -1: no log-probabilities at all."""
        return -1

    @property
    def stops(self) -> list[str]:
        """Strings before which an answer ends."""
        if self.stop is None:
            return []
        return [self.stop] if isinstance(self.stop, str) else self.stop

    @property
    def past_end(self) -> bool:
        """Whether an answer goes on after the model's end token."""
        return bool(self.ignore_eos)

    @property
    def include_usage(self) -> bool:
        """Whether a stream ends with its usage."""
        return self.stream_options is not None and bool(self.stream_options.include_usage)

    @property
    def include_details(self) -> bool:
        """Whether a stream tells how its answer comes about."""
        return self.stream_options is not None and bool(self.stream_options.include_details)

    def sampling(self, place: int = 0, grammar: str = "") -> Sampling:
        """Return how the tail samples the answer at `place` of several to one prompt.

        Answers of one request have seeds that follow one another: the first is what it would be alone. `grammar` is
        what the answer must be (empty: anything).
        """
        sampled = super().sampling(place, grammar)
        asked = msgspec.structs.replace(
            sampled,
            repetition_penalty=1.0 if self.repetition_penalty is None else self.repetition_penalty,
            presence_penalty=self.presence_penalty or 0.0,
            frequency_penalty=self.frequency_penalty or 0.0,
            logit_bias={int(token): bias for token, bias in (self.logit_bias or {}).items() if bias},
            logprobs=self.wanted_logprobs,
        )
        if not sampled.temperature:
            return asked
        seed = sampled.seed if self.seed is None else (self.seed + place) % (1 << _SEED_BITS)
        return msgspec.structs.replace(asked, top_k=max(0, self.top_k or 0), min_p=self.min_p or 0.0, seed=seed)


def is_empty(value: object) -> bool:
    """Whether a value asks for nothing."""
    return value in (None, False, 0, "", [], {})


def one_of(*neutral: object) -> Callable[[object], bool]:
    """Return the test for values that ask for nothing where some do."""
    return lambda value: value is None or value in neutral


Refusals = dict[str, Callable[[object], bool]]
"""Parameters that would change the answer, each with the test for values that ask for nothing."""

UNSUPPORTED: Refusals = {
    "prompt_logprobs": is_empty,
    "use_beam_search": is_empty,
    "length_penalty": one_of(1),
    "min_tokens": is_empty,
    "stop_token_ids": is_empty,
    "structured_outputs": is_empty,
    "guided_json": is_empty,
    "guided_regex": is_empty,
    "guided_choice": is_empty,
    "guided_grammar": is_empty,
    "grammar": is_empty,
    "json_schema": is_empty,
}
"""Those that other servers know for every kind of request."""


class IgnoredFields:
    """Names, once each, the fields of requests that nobody here acts on. Event loop only."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def tell(self, names: Collection[str]) -> None:
        """Log those of `names` that were not named before."""
        new = sorted(set(names) - self._told)
        # Names come from clients: there must be an end to what is remembered and logged of them.
        new = new[: MAX_NAMES_TOLD - len(self._told)]
        self._told.update(new)
        if new:
            log.warning("Ignored request fields (named once): %s", ", ".join(repr(name)[:64] for name in new))


T = TypeVar("T", bound=TextRequest)


def parse(raw: dict[str, Any], type_: type[T], refusals: Refusals, ignored: IgnoredFields) -> T:
    """Check what all requests have in common. Raises ApiError 400 naming the parameter."""
    refuse(raw, refusals)
    _refuse_bias(raw.get("logit_bias"))
    request = convert(raw, type_)
    if request.stream_options is not None and not request.stream:
        raise wrong("stream_options", "The parameter 'stream_options' is only allowed when 'stream' is true.")
    ignored.tell(raw.keys() - set(type_.__struct_fields__) - refusals.keys())
    return request


def refuse(raw: dict[str, Any], refusals: Refusals) -> None:
    """Raise ApiError 400 for the first parameter that asks for what is not supported."""
    for name, asks_nothing in refusals.items():
        if name in raw and not asks_nothing(raw[name]):
            raise unsupported(name)


def unsupported(name: str) -> ApiError:
    """Return the refusal of a parameter."""
    message = f"The parameter {name[:64]!r} is not supported with this value; leave it out."
    return ApiError(400, message, param=name[:64], code="unsupported_parameter")


def wrong(param: str, message: str, *, code: str = "invalid_value") -> ApiError:
    """Return the refusal of a value."""
    return ApiError(400, message, param=param, code=code)


def _refuse_bias(bias: object) -> None:
    """Check what types alone cannot say, under the parameter's own name; whether an id exists the model says."""
    if not isinstance(bias, dict):
        return
    if len(bias) > MAX_BIASED_TOKENS:
        reason = f"it has {counted(len(bias), 'entry', 'entries')} and {MAX_BIASED_TOKENS} are allowed"
    elif not all(_TOKEN_ID.fullmatch(token) for token in bias):
        reason = "its keys must be token ids of this model, as decimal numbers"
    elif not all(type(value) in {int, float} and abs(value) <= MAX_BIAS for value in bias.values()):
        reason = f"its values must be numbers from -{MAX_BIAS:.0f} to {MAX_BIAS:.0f}"
    elif len({int(token) for token in bias}) != len(bias):
        reason = "it names a token id twice"
    else:
        return
    raise wrong("logit_bias", f"The parameter 'logit_bias' is wrong: {reason}.")
