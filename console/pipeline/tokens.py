"""A library's tokenizer and chat template, without transformers: prompts in, text out."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn, Protocol

import jinja2
import msgspec
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

from console.pipeline.errors import PromptError, TokenizerUnusable
from console.pipeline.text import TextStream
from shard_export.library.manifest import Manifest, Tokens

MAX_TEMPLATE_BYTES = 1 << 20


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


class ModelTokenizer:
    """The `tokenizers` package and a sandboxed Jinja template, joined as transformers would join them."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        eos_ids: Sequence[int],
        bos_id: int | None = None,
        adds_bos: bool = False,
        template: str = "",
        special_tokens: Mapping[str, str] | None = None,
        vocab_size: int | None = None,
    ) -> None:
        """`vocab_size` is the model's where it is padded beyond the tokenizer's; raises TokenizerUnusable."""
        self._tokenizer = tokenizer
        self._bos_id = bos_id if adds_bos else None
        self._special_tokens = dict(special_tokens or {})
        self._template = _compile(template) if template.strip() else None
        self.eos_ids = frozenset(eos_ids)
        self.vocab_size = vocab_size or tokenizer.get_vocab_size()
        self.probe_id = bos_id if bos_id is not None else next(iter(eos_ids), 0)

    @classmethod
    def load(cls, folder: Path, manifest: Manifest) -> ModelTokenizer:
        """Read the tokenizer files of a verified library folder. Raises TokenizerUnusable."""
        tokens = manifest.tokens
        names = {Path(record.path).name: folder / record.path for record in tokens.files}
        if "tokenizer.json" not in names:
            raise TokenizerUnusable(
                f"The library of {manifest.model_id} holds no tokenizer.json: export the model again from a source"
                " that has one."
            )
        try:
            tokenizer = Tokenizer.from_file(str(names["tokenizer.json"]))
        except Exception as error:  # noqa: BLE001 - the package raises bare Exception for every kind of bad file
            raise TokenizerUnusable(f"The tokenizer of {manifest.model_id} cannot be read: {error}.") from None
        config = _read_config(names.get("tokenizer_config.json"))
        return cls(
            tokenizer,
            eos_ids=tokens.eos_ids,
            bos_id=tokens.bos_id,
            adds_bos=tokens.adds_bos,
            template=_read_template(folder, tokens, config),
            special_tokens=_special_tokens(config, tokenizer, tokens),
            vocab_size=manifest.vocab_size,
        )

    def encode_chat(self, messages: list[dict[str, str]]) -> list[int]:
        """Apply the chat template with the answer's opening and tokenize; BOS exactly once. Raises PromptError."""
        if not messages:
            raise PromptError("The conversation is empty: send at least one message.")
        return self._encode(self.render_chat(messages))

    def encode_text(self, text: str) -> list[int]:
        """Tokenize plain text, with BOS where the model wants one."""
        return self._encode(text)

    def render_chat(self, messages: list[dict[str, str]]) -> str:
        """Apply the chat template. Raises PromptError with the template's own complaint."""
        if self._template is None:
            raise PromptError("This model has no chat template: it completes text but cannot chat.")
        try:
            return self._template.render(messages=messages, add_generation_prompt=True, **self._special_tokens)
        except (jinja2.TemplateError, TypeError, ValueError, LookupError, ArithmeticError) as error:
            raise PromptError(f"The model's chat template refuses this conversation: {error}.") from None

    def decode(self, ids: Sequence[int]) -> str:
        """Decode ids in one go, without special tokens."""
        return str(self._tokenizer.decode(ids, skip_special_tokens=True))

    def text_stream(self) -> TextStream:
        """Start decoding one answer."""
        return TextStream(self.decode)

    def _encode(self, text: str) -> list[int]:
        # The template already wrote the special tokens; the tokenizer's own would be a second BOS.
        ids = list(self._tokenizer.encode(text, add_special_tokens=False).ids)
        if self._bos_id is None:
            return ids
        while ids and ids[0] == self._bos_id:
            ids.pop(0)
        return [self._bos_id, *ids]


def _compile(template: str) -> jinja2.Template:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    try:
        return environment.from_string(template)
    except jinja2.TemplateError as error:
        raise TokenizerUnusable(f"The model's chat template cannot be compiled: {error}.") from None


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # Jinja's own filter escapes <, > and & for HTML, which a model has never seen.
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _strftime_now(pattern: str) -> str:
    return datetime.now().astimezone().strftime(pattern)


def _read_config(path: Path | None) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.MsgspecError) as error:
        raise TokenizerUnusable(f"The library's tokenizer_config.json cannot be read: {error}.") from None


def _read_template(folder: Path, tokens: Tokens, config: dict[str, Any]) -> str:
    """Return the template's text: the file the manifest names, else the one inside the config, else nothing."""
    if tokens.chat_template_path:
        path = folder / tokens.chat_template_path
        try:
            if path.stat().st_size > MAX_TEMPLATE_BYTES:
                raise TokenizerUnusable("The library's chat template is larger than 1 MiB: export the model again.")
            return path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise TokenizerUnusable(f"The library's chat template cannot be read: {error}.") from None
    inside = config.get("chat_template", "")
    if isinstance(inside, list):
        named = {entry.get("name"): entry.get("template") for entry in inside if isinstance(entry, dict)}
        inside = named.get("default", "")
    return inside if isinstance(inside, str) else ""


def _special_tokens(config: dict[str, Any], tokenizer: Tokenizer, tokens: Tokens) -> dict[str, str]:
    """Collect what templates call `bos_token`, `eos_token` and so on."""
    found: dict[str, str] = {}
    for name, token_id in (("bos_token", tokens.bos_id), ("eos_token", next(iter(tokens.eos_ids), None))):
        text = tokenizer.id_to_token(token_id) if token_id is not None else None
        if text is not None:
            found[name] = text
    for name in ("bos_token", "eos_token", "unk_token", "pad_token"):
        value = config.get(name)
        if isinstance(value, dict):
            value = value.get("content")
        if isinstance(value, str):
            found[name] = value
    return found
