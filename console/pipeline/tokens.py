"""A model's tokenizer as the pipeline uses it: the library's chat codec, streaming, and the console's errors."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, cast

import jinja2

from console.pipeline.dialects import Dialect, dialect_of
from console.pipeline.errors import PromptError, TokenizerUnusable
from console.pipeline.text import TextStream
from shard_export.library.chat import ChatCodec
from shard_export.library.errors import ChatUnusable, PromptRefused
from shard_export.library.manifest import Manifest

# One text at a time gains nothing from a pool of threads, which would stay for good.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

MANY_IDS = 4096
"""To let the interpreter's lock go pays from about here on: `decode` holds it for 3 ms then."""


class ToolCodec(ChatCodec):
    """A chat codec that shows the model tools, where its template takes them."""

    def render_tools(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None) -> str:
        """Apply the chat template with the answer's opening. Raises PromptRefused with the template's own complaint."""
        if not tools and not any("tool_calls" in message or message["role"] == "tool" for message in messages):
            return self.render_chat(messages)
        if self._template is None:
            raise PromptRefused("This model has no chat template: it completes text but cannot chat.")
        try:
            return self._template.render(
                messages=messages, tools=tools, documents=None, add_generation_prompt=True, **self._special_tokens
            )
        except (jinja2.TemplateError, TypeError, ValueError, LookupError, ArithmeticError) as error:
            raise PromptRefused(f"The model's chat template refuses this conversation: {error}.") from None

    def encode_text(self, text: str) -> list[int]:
        """Tokenize plain text, with BOS where the model wants one. Other threads go on meanwhile."""
        # `encode` holds the interpreter's lock to its end: 1.7 s for 500 kB, from whatever thread.
        (encoded,) = self.tokenizer.encode_batch_fast([text], add_special_tokens=False)
        return self.with_one_bos(list(encoded.ids))

    def decode(self, ids: Sequence[int]) -> str:
        """Decode ids in one go, without special tokens. Other threads go on while it decodes many."""
        if len(ids) < MANY_IDS:
            return super().decode(ids)
        return str(self.tokenizer.decode_batch([ids], skip_special_tokens=True)[0])

    @property
    def added_texts(self) -> frozenset[str]:
        """The texts of the tokens that stand beside the vocabulary."""
        return frozenset(self._added.values())

    @property
    def dialect(self) -> Dialect:
        """How the model writes what is not plain text."""
        return dialect_of(self._render_for_dialect, self.added_texts)

    def _render_for_dialect(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None) -> str:
        try:
            return self.render_tools(messages, tools)
        except PromptRefused as error:
            raise ValueError(str(error)) from None


class TextCodec(Protocol):
    """What the coordinator needs of a model's tokenizer."""

    eos_ids: frozenset[int]
    vocab_size: int
    probe_id: int
    """Any valid token: what a readiness probe sends."""
    dialect: Dialect
    """How the model writes what is not plain text."""

    def encode_chat(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None = None) -> list[int]:
        """Apply the chat template, which is shown the tools, and tokenize. Raises PromptError."""
        ...

    def encode_text(self, text: str) -> list[int]:
        """Tokenize plain text, with BOS where the model wants one."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Decode ids in one go, without special tokens."""
        ...

    def text_stream(self) -> TextStream:
        """Start decoding one answer."""
        ...

    def token_bytes(self, token: int) -> bytes:
        """Return the text of one token, perhaps a part of a code point; special tokens by their names."""
        ...


class ModelTokenizer:
    """A chat codec with the ids the pipeline asks for."""

    def __init__(
        self, codec: ToolCodec, *, eos_ids: Sequence[int], bos_id: int | None = None, vocab_size: int | None = None
    ) -> None:
        """`vocab_size` is the model's where it is padded beyond the tokenizer's."""
        self._codec = codec
        self.eos_ids = frozenset(eos_ids)
        self.vocab_size = vocab_size or codec.tokenizer.get_vocab_size()
        self.probe_id = bos_id if bos_id is not None else next(iter(eos_ids), 0)
        self.dialect = codec.dialect
        added = codec.tokenizer.get_added_tokens_decoder().items()
        self._marks = {
            token: mark.content for token, mark in added if mark.special and mark.content in self.dialect.tokens
        }

    @classmethod
    def load(cls, folder: Path, manifest: Manifest) -> ModelTokenizer:
        """Read the tokenizer files of a verified library folder. Raises TokenizerUnusable."""
        tokens = manifest.tokens
        try:
            codec = cast(ToolCodec, ToolCodec.load(folder, tokens, manifest.model_id))
        except ChatUnusable as error:
            raise TokenizerUnusable(str(error)) from None
        return cls(codec, eos_ids=tokens.eos_ids, bos_id=tokens.bos_id, vocab_size=manifest.vocab_size)

    def encode_chat(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None = None) -> list[int]:
        """Apply the chat template with the answer's opening and tokenize; BOS exactly once. Raises PromptError."""
        try:
            if not messages:
                raise PromptError("The conversation is empty: send at least one message.")
            return self.encode_text(self._codec.render_tools(messages, tools))
        except PromptRefused as error:
            raise PromptError(str(error)) from None

    def encode_text(self, text: str) -> list[int]:
        """Tokenize plain text, with BOS where the model wants one."""
        return self._codec.encode_text(text)

    def render_chat(self, messages: list[dict[str, str]]) -> str:
        """Apply the chat template. Raises PromptError with the template's own complaint."""
        try:
            return self._codec.render_chat(messages)
        except PromptRefused as error:
            raise PromptError(str(error)) from None

    def decode(self, ids: Sequence[int]) -> str:
        """Decode ids in one go, without special tokens but those that mark calls and thoughts."""
        if self._marks.keys().isdisjoint(ids):
            return self._codec.decode(ids)
        pieces, plain = list[str](), list[int]()
        for token in ids:
            if token in self._marks:
                pieces += [self._codec.decode(plain), self._marks[token]]
                plain = []
            else:
                plain.append(token)
        return "".join([*pieces, self._codec.decode(plain)])

    def text_stream(self) -> TextStream:
        """Start decoding one answer."""
        return TextStream(self.decode)

    def token_bytes(self, token: int) -> bytes:
        """Return the text of one token, perhaps a part of a code point; special tokens by their names."""
        return self._codec.token_bytes(token)
