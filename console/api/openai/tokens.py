"""/tokenize and /detokenize: what a model makes of text, and back. Costs no PC anything."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from console.api.http import convert
from console.api.openai.completions import TokenId
from console.api.openai.parameters import IgnoredFields, Refusals, is_empty, one_of, refuse, wrong
from console.api.openai.requests import MAX_MESSAGES, Message, refuse_foreign_content
from console.pipeline.types import Generator

MAX_TOKENS = 1 << 20


class TokenizeRequest(msgspec.Struct, frozen=True):
    """Text, or a conversation that goes through the chat template; with the tokens that the model wants in front."""

    model: str
    prompt: str | None = None
    messages: Annotated[list[Message], msgspec.Meta(min_length=1, max_length=MAX_MESSAGES)] | None = None
    return_token_strs: bool | None = None


class TokenizeBody(msgspec.Struct, frozen=True):
    """Token ids; `token_strs` are their texts, where asked for, with a mark for a part of a code point."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None = None


class DetokenizeRequest(msgspec.Struct, frozen=True):
    """Token ids of a model."""

    model: str
    tokens: Annotated[list[TokenId], msgspec.Meta(max_length=MAX_TOKENS)]


class DetokenizeBody(msgspec.Struct, frozen=True):
    """Their text, without special tokens but those that mark calls and thoughts."""

    prompt: str


_REFUSALS: Refusals = {
    "add_special_tokens": one_of(True),
    "add_generation_prompt": one_of(True),
    "tools": is_empty,
}


def parse_tokenize(raw: dict[str, Any], ignored: IgnoredFields) -> TokenizeRequest:
    """Check a request. Raises ApiError 400 naming the parameter."""
    refuse(raw, _REFUSALS)
    refuse_foreign_content(raw.get("messages"))
    asked = convert(raw, TokenizeRequest)
    if (asked.prompt is None) == (asked.messages is None):
        raise wrong("prompt", "Either 'prompt' or 'messages' must be there, and not both.")
    ignored.tell(raw.keys() - set(TokenizeRequest.__struct_fields__) - _REFUSALS.keys())
    return asked


def tokenized(asked: TokenizeRequest, generator: Generator, context_tokens: int) -> TokenizeBody:
    """Tokenize; `context_tokens` are the model's. Raises PromptError."""
    if asked.messages is not None:
        ids = generator.encode_chat([said.plain(f"messages[{place}]") for place, said in enumerate(asked.messages)])
    else:
        ids = generator.encode_text(asked.prompt or "")
    texts = (
        [generator.token_bytes(token).decode(errors="replace") for token in ids] if asked.return_token_strs else None
    )
    return TokenizeBody(len(ids), context_tokens, ids, texts)


def detokenized(asked: DetokenizeRequest, generator: Generator) -> DetokenizeBody:
    """Make text of tokens. Raises ApiError 400 for an id that the model does not have."""
    if any(token >= generator.vocab_size for token in asked.tokens):
        raise wrong("tokens", f"The parameter 'tokens' holds an id outside of 0..{generator.vocab_size - 1}.")
    return DetokenizeBody(generator.decode(asked.tokens))
