"""A model's tokenizer as the pipeline uses it: the library's chat codec, streaming, and the console's errors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from console.pipeline.errors import PromptError, TokenizerUnusable
from console.pipeline.text import TextStream
from shard_export.library.chat import ChatCodec
from shard_export.library.errors import ChatUnusable, PromptRefused
from shard_export.library.manifest import Manifest


class TextCodec(Protocol):
    """What the coordinator needs of a model's tokenizer."""

    eos_ids: frozenset[int]
    vocab_size: int
    probe_id: int
    """Any valid token: what a readiness probe sends."""

    def encode_chat(self, messages: list[dict[str, str]]) -> list[int]:
        """Apply the chat template and tokenize. Raises PromptError."""
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
        self, codec: ChatCodec, *, eos_ids: Sequence[int], bos_id: int | None = None, vocab_size: int | None = None
    ) -> None:
        """`vocab_size` is the model's where it is padded beyond the tokenizer's."""
        self._codec = codec
        self.eos_ids = frozenset(eos_ids)
        self.vocab_size = vocab_size or codec.tokenizer.get_vocab_size()
        self.probe_id = bos_id if bos_id is not None else next(iter(eos_ids), 0)

    @classmethod
    def load(cls, folder: Path, manifest: Manifest) -> ModelTokenizer:
        """Read the tokenizer files of a verified library folder. Raises TokenizerUnusable."""
        tokens = manifest.tokens
        try:
            codec = ChatCodec.load(folder, tokens, manifest.model_id)
        except ChatUnusable as error:
            raise TokenizerUnusable(str(error)) from None
        return cls(codec, eos_ids=tokens.eos_ids, bos_id=tokens.bos_id, vocab_size=manifest.vocab_size)

    def encode_chat(self, messages: list[dict[str, str]]) -> list[int]:
        """Apply the chat template with the answer's opening and tokenize; BOS exactly once. Raises PromptError."""
        try:
            return self._codec.encode_chat(messages)
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
        """Decode ids in one go, without special tokens."""
        return self._codec.decode(ids)

    def text_stream(self) -> TextStream:
        """Start decoding one answer."""
        return TextStream(self.decode)

    def token_bytes(self, token: int) -> bytes:
        """Return the text of one token, perhaps a part of a code point; special tokens by their names."""
        return self._codec.token_bytes(token)
