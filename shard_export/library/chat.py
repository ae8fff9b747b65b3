"""A library's chat template and tokenizer, without transformers: conversations in, token ids out.

The build holds what comes out of here against transformers' own rendering before it publishes, and the console serves
with it, so what was compared is what answers. Imports `tokenizers` and `jinja2`, which an agent does not have.
"""

from __future__ import annotations

import json
import re
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import jinja2
import msgspec
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

from shard_export.library.errors import ChatUnusable, PromptRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from jinja2.parser import Parser

    from shard_export.library.manifest import Tokens

MAX_TEMPLATE_BYTES = 1 << 20
SPECIAL_NAMES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
"""What a template may call by name, where the tokenizer's config has it."""


class ChatCodec:
    """The `tokenizers` package and a sandboxed Jinja template, joined as transformers joins them."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        bos_id: int | None = None,
        adds_bos: bool = False,
        template: str = "",
        special_tokens: Mapping[str, str] | None = None,
    ) -> None:
        """`adds_bos` says that the model wants `bos_id` in front of every prompt. Raises ChatUnusable."""
        # A tokenizer.json may carry the limits somebody trained with; a prompt is never cut or filled up silently.
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self.tokenizer = tokenizer
        self._bos_id = bos_id if adds_bos else None
        self._special_tokens = dict(special_tokens or {})
        self._template = compile_template(template) if template.strip() else None
        self._added = {token: added.content for token, added in tokenizer.get_added_tokens_decoder().items()}
        self._byte_level = b'"ByteLevel"' in (tokenizer.decoder.__getstate__() if tokenizer.decoder else b"")

    @classmethod
    def load(cls, folder: Path, tokens: Tokens, model_id: str) -> ChatCodec:
        """Read the tokenizer files of a library folder. Raises ChatUnusable with `model_id` in the sentence."""
        names = {Path(record.path).name: folder / record.path for record in tokens.files}
        if "tokenizer.json" not in names:
            raise ChatUnusable(
                f"The library of {model_id} holds no tokenizer.json: export the model again from a source that has one."
            )
        try:
            tokenizer = Tokenizer.from_file(str(names["tokenizer.json"]))
        except Exception as error:  # noqa: BLE001 - the package raises bare Exception for every kind of bad file
            raise ChatUnusable(f"The tokenizer of {model_id} cannot be read: {error}.") from None
        config = _read_config(names.get("tokenizer_config.json"))
        return cls(
            tokenizer,
            bos_id=tokens.bos_id,
            adds_bos=tokens.adds_bos,
            template=_read_template(folder, tokens, config),
            special_tokens=_special_tokens(config, tokenizer, tokens),
        )

    @property
    def can_chat(self) -> bool:
        """Whether there is a chat template."""
        return self._template is not None

    def encode_chat(self, messages: list[dict[str, str]]) -> list[int]:
        """Apply the chat template with the answer's opening and tokenize; BOS exactly once. Raises PromptRefused."""
        if not messages:
            raise PromptRefused("The conversation is empty: send at least one message.")
        return self.encode_text(self.render_chat(messages))

    def encode_text(self, text: str) -> list[int]:
        """Tokenize plain text, with BOS where the model wants one."""
        # The template already wrote the special tokens; the tokenizer's own would be a second BOS.
        return self.with_one_bos(list(self.tokenizer.encode(text, add_special_tokens=False).ids))

    def with_one_bos(self, ids: list[int]) -> list[int]:
        """Return `ids` with BOS in front exactly once, or as they are for a model that wants none."""
        if self._bos_id is None:
            return ids
        first = next((place for place, token in enumerate(ids) if token != self._bos_id), len(ids))
        return [self._bos_id, *ids[first:]]

    def render_chat(self, messages: list[dict[str, str]]) -> str:
        """Apply the chat template. Raises PromptRefused with the template's own complaint."""
        if self._template is None:
            raise PromptRefused("This model has no chat template: it completes text but cannot chat.")
        try:
            # Templates ask `tools is not none`, which is true for a name that is not there at all.
            return self._template.render(
                messages=messages, tools=None, documents=None, add_generation_prompt=True, **self._special_tokens
            )
        except (jinja2.TemplateError, TypeError, ValueError, LookupError, ArithmeticError) as error:
            raise PromptRefused(f"The model's chat template refuses this conversation: {error}.") from None

    def decode(self, ids: Sequence[int]) -> str:
        """Decode ids in one go, without special tokens."""
        return str(self.tokenizer.decode(ids, skip_special_tokens=True))

    def token_bytes(self, token: int) -> bytes:
        """Return what one token stands for in UTF-8, perhaps a part of a code point; special tokens by their names.

        An id that the tokenizer does not know, as in a padded vocabulary, stands for nothing.
        """
        if token in self._added:
            return self._added[token].encode()
        piece = self.tokenizer.id_to_token(token)
        if piece is None:
            return b""
        if self._byte_level:
            return b"".join(_BYTES.get(character) or character.encode() for character in piece)
        if byte := _BYTE_PIECE.fullmatch(piece):
            return bytes.fromhex(byte[1])
        return str(piece).replace(_SENTENCEPIECE_SPACE, " ").encode()


def _byte_alphabet() -> dict[str, bytes]:
    """Return how byte-level tokenizers write each byte: printable ones as themselves, others from U+0100 on."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = (byte for byte in range(256) if byte not in printable)
    spelled = {chr(0x100 + place): bytes([byte]) for place, byte in enumerate(others)}
    return spelled | {chr(byte): bytes([byte]) for byte in printable}


_BYTES = _byte_alphabet()
_BYTE_PIECE = re.compile("<0x([0-9A-Fa-f]{2})>")
_SENTENCEPIECE_SPACE = "\u2581"


def compile_template(template: str) -> jinja2.Template:
    """Compile a chat template in a sandbox with the names transformers promises. Raises ChatUnusable."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationBlock, "jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    try:
        return environment.from_string(template)
    except jinja2.TemplateError as error:
        raise ChatUnusable(f"The model's chat template cannot be compiled: {error}.") from None


class _GenerationBlock(Extension):
    """`{% generation %}` marks for training what the model said; for us it is only a scope."""

    tags = {"generation"}  # noqa: RUF012 - the base class declares it so

    def parse(self, parser: Parser) -> jinja2.nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_content"), [], [], body).set_lineno(line)

    def _content(self, caller: Callable[[], str]) -> str:
        return caller()


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
        raise ChatUnusable(f"The library's tokenizer_config.json cannot be read: {error}.") from None


def _read_template(folder: Path, tokens: Tokens, config: dict[str, Any]) -> str:
    """Return the template's text: the file the manifest names, else the one inside the config, else nothing."""
    if tokens.chat_template_path:
        path = folder / tokens.chat_template_path
        try:
            if path.stat().st_size > MAX_TEMPLATE_BYTES:
                raise ChatUnusable("The library's chat template is larger than 1 MiB: export the model again.")
            return path.read_bytes().decode("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ChatUnusable(f"The library's chat template cannot be read: {error}.") from None
    return named_template(config.get("chat_template"))


def named_template(found: Any) -> str:
    """Return the one template of a config's entry: a string, or the `default` of several with names; else nothing."""
    if isinstance(found, list):
        found = {entry.get("name"): entry.get("template") for entry in found if isinstance(entry, dict)}
    if isinstance(found, dict):
        found = found.get("default")
    return found if isinstance(found, str) else ""


def _special_tokens(config: dict[str, Any], tokenizer: Tokenizer, tokens: Tokens) -> dict[str, str]:
    """Collect what templates call `bos_token`, `eos_token` and so on; a name the config lacks stays undefined."""
    found: dict[str, str] = {}
    for name in SPECIAL_NAMES:
        value = config.get(name)
        if isinstance(value, dict):
            value = value.get("content")
        if isinstance(value, str):
            found[name] = value
    if not config:
        for name, token_id in (("bos_token", tokens.bos_id), ("eos_token", next(iter(tokens.eos_ids), None))):
            text = tokenizer.id_to_token(token_id) if token_id is not None else None
            if text is not None:
                found[name] = text
    return found
