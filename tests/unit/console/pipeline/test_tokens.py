from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from console.pipeline.errors import PromptError, TokenizerUnusable
from console.pipeline.text import HELD_TOKENS
from console.pipeline.tokens import ModelTokenizer, ToolCodec
from shard_export.library.manifest import MANIFEST_NAME, Manifest
from tests.support.byte_tokens import BOS, EOS, byte_tokenizer
from tests.support.tokenizers import TOKENIZERS

FAMILY = "👩‍👩‍👧"
HELLO = [{"role": "user", "content": "Hello <b> & 'you' 😀"}]


def make_tokenizer(template: str = "{{ messages[0]['content'] }}") -> ModelTokenizer:
    codec = ToolCodec(byte_tokenizer(), bos_id=BOS, template=template, special_tokens={"bos_token": "<s>"})
    return ModelTokenizer(codec, eos_ids=[EOS], bos_id=BOS)


def test_text_survives_encoding_and_decoding() -> None:
    tokenizer = make_tokenizer()
    ids = tokenizer.encode_chat(HELLO)
    assert len(ids) == len("Hello <b> & 'you' 😀".encode())
    assert tokenizer.decode(ids) == "Hello <b> & 'you' 😀"
    assert tokenizer.decode([*ids, EOS]) == "Hello <b> & 'you' 😀"


def test_other_threads_go_on_while_a_long_text_is_tokenized_and_put_together_again() -> None:
    tokenizer, text = make_tokenizer(), "ab" * 300_000
    with ThreadPoolExecutor(1) as threads:
        encoding = threads.submit(tokenizer.encode_text, text)
        assert turns_beside(encoding) > 10
        decoding = threads.submit(tokenizer.decode, encoding.result())
        assert turns_beside(decoding) > 10
        assert decoding.result() == text


def turns_beside(running: Future[Any]) -> int:
    """Count how often this thread gets its turn until the other one is done."""
    turns = 0
    while not running.done():
        time.sleep(0.001)
        turns += 1
    return turns


@pytest.mark.parametrize("template", ["{{ raise_exception('roles must alternate') }}", "", "{{ 1 // 0 }}"])
def test_what_the_template_refuses_is_the_requests_fault(template: str) -> None:
    for ask in (make_tokenizer(template).encode_chat, make_tokenizer(template).render_chat):
        with pytest.raises(PromptError, match="chat template"):
            ask(HELLO)


def test_an_empty_conversation_is_refused() -> None:
    with pytest.raises(PromptError, match="at least one message"):
        make_tokenizer().encode_chat([])


def make_library(folder: Path, library: Path, **files: bytes | None) -> Manifest:
    """Copy the tokenizer of a library with some files replaced (or, with None, missing on disk)."""
    manifest = read_manifest(library)
    for record in manifest.tokens.files:
        target = folder / record.path
        target.parent.mkdir(parents=True, exist_ok=True)
        content = files.get(target.stem, (library / record.path).read_bytes())
        if content is not None:
            target.write_bytes(content)
    return manifest


def read_manifest(library: Path) -> Manifest:
    return msgspec.json.decode((library / MANIFEST_NAME).read_bytes(), type=Manifest)


def test_the_real_template_and_tokenizer_give_the_known_prompt(smollm2_library: Path) -> None:
    tokenizer = ModelTokenizer.load(smollm2_library, read_manifest(smollm2_library))
    rendered = tokenizer.render_chat(HELLO)
    assert rendered.startswith("<|im_start|>system\n")
    assert rendered.endswith("<|im_start|>user\nHello <b> & 'you' 😀<|im_end|>\n<|im_start|>assistant\n")
    ids = tokenizer.encode_chat(HELLO)
    raw = Tokenizer.from_file(str(smollm2_library / "tokenizer" / "tokenizer.json"))
    assert ids == raw.encode(rendered, add_special_tokens=False).ids
    assert raw.id_to_token(ids[0]) == "<|im_start|>"
    assert {raw.id_to_token(token) for token in tokenizer.eos_ids} >= {"<|im_end|>"}


def test_the_real_tokenizer_streams_emoji_and_scripts_whole(smollm2_library: Path) -> None:
    tokenizer = ModelTokenizer.load(smollm2_library, read_manifest(smollm2_library))
    text = " Hi 👩‍👩‍👧 — ünï 日本語\n\n  end 🇫🇷"
    stream = tokenizer.text_stream()
    pieces = [stream.push(token) for token in tokenizer.encode_text(text)]
    assert "".join(pieces) + stream.flush() == text
    assert not any("\ufffd" in piece for piece in pieces)


def streamed(tokenizer: ModelTokenizer, ids: Sequence[int]) -> list[str]:
    stream = tokenizer.text_stream()
    return [*(stream.push(token) for token in ids), stream.flush()]


@pytest.mark.parametrize("unknown", [1, HELD_TOKENS, 3 * HELD_TOKENS])
def test_what_a_decoder_puts_between_words_survives_any_number_of_tokens_without_text(unknown: int) -> None:
    tokenizer = ModelTokenizer(ToolCodec(TOKENIZERS["words"]()), eos_ids=[2])
    ids = tokenizer.encode_text("the " + "日本 " * unknown + "fox jumps")
    assert len(ids) == unknown + 3
    assert "".join(streamed(tokenizer, ids)) == tokenizer.decode(ids) == "the fox jumps"


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_every_kind_of_decoder_streams_what_it_decodes_at_once(kind: str) -> None:
    tokenizer = ModelTokenizer(ToolCodec(TOKENIZERS[kind]()), eos_ids=[2])

    @given(
        st.lists(
            st.sampled_from(["the fox", " ", "  ", "\n", "é", "日本", FAMILY, "\x00", "🇫🇷", "<s>", "jumps,"])
            | st.text()
        )
    )
    def check(parts: list[str]) -> None:
        ids = tokenizer.encode_text("".join(parts))
        pieces = streamed(tokenizer, ids)
        whole = tokenizer.decode(ids)
        assert "".join(pieces).rstrip("\ufffd") == whole.rstrip("\ufffd")
        assert all("\ufffd" not in piece or "\ufffd" in whole for piece in pieces)

    check()


def test_a_nul_byte_goes_in_and_comes_out(smollm2_library: Path) -> None:
    tokenizer = ModelTokenizer.load(smollm2_library, read_manifest(smollm2_library))
    ids = tokenizer.encode_text("a\x00b")
    assert (tokenizer.decode(ids), "".join(streamed(tokenizer, ids))) == ("a\x00b", "a\x00b")


@pytest.mark.parametrize(
    ("files", "complaint"),
    [
        ({"tokenizer": b"{"}, "tokenizer of .* cannot be read"),
        ({"tokenizer": None}, "tokenizer of .* cannot be read"),
        ({"tokenizer_config": b"[]"}, "tokenizer_config.json cannot be read"),
        ({"chat_template": None}, "chat template cannot be read"),
        ({"chat_template": b"\xff\xfe"}, "chat template cannot be read"),
        ({"chat_template": b" " * (1 << 21)}, "larger than 1 MiB"),
    ],
)
def test_a_torn_library_makes_the_tokenizer_unusable(
    tmp_path: Path, smollm2_library: Path, files: dict[str, bytes | None], complaint: str
) -> None:
    manifest = make_library(tmp_path, smollm2_library, **files)
    with pytest.raises(TokenizerUnusable, match=complaint):
        ModelTokenizer.load(tmp_path, manifest)
