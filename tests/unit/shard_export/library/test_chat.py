"""The chat codec: templates as transformers renders them, BOS exactly once, nothing that a template may break."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from shard_export.library.chat import ChatCodec, named_template
from shard_export.library.errors import ChatUnusable, PromptRefused
from shard_export.library.manifest import Tokens
from shard_export.library.store import record_of
from tests.support.byte_tokens import BOS, EOS, byte_tokenizer

if TYPE_CHECKING:
    from pathlib import Path

HELLO = [{"role": "user", "content": "Hello <b> & 'you' 😀"}]


def make_codec(template: str = "{{ messages[0]['content'] }}", **changes: Any) -> ChatCodec:
    return ChatCodec(byte_tokenizer(), bos_id=BOS, template=template, special_tokens={"bos_token": "<s>"}, **changes)


@pytest.mark.parametrize(
    "template",
    [
        "{{ messages[0].content }}",
        "{{ bos_token }}{{ messages[0].content }}",
        "{{ bos_token }}{{ bos_token }}{{ messages[0].content }}",
    ],
)
def test_bos_comes_exactly_once_whether_the_template_writes_it_or_not(template: str) -> None:
    ids = make_codec(template, adds_bos=True).encode_chat(HELLO)
    assert ids[0] == BOS
    assert ids.count(BOS) == 1


def test_bos_is_left_to_the_template_of_models_that_add_none() -> None:
    assert BOS not in make_codec().encode_chat(HELLO)
    assert make_codec("{{ bos_token }}x").encode_chat(HELLO).count(BOS) == 1


def test_the_template_opens_the_answer() -> None:
    template = "{% for m in messages %}\n  {{ m.content }}\n{% endfor %}\n{% if add_generation_prompt %}>{% endif %}"
    assert make_codec(template).render_chat([{"role": "user", "content": "a"}]) == "  a\n>"


def test_tojson_writes_what_python_writes() -> None:
    value = {"b": "<é> & 'x'", "a": [1, None, True]}
    rendered = make_codec("{{ {'b': \"<é> & 'x'\", 'a': [1, none, true]} | tojson }}").render_chat(HELLO)
    assert rendered == json.dumps(value, ensure_ascii=False)


def test_strftime_now_gives_a_date() -> None:
    assert len(make_codec("{{ strftime_now('%Y-%m-%d') }}").render_chat(HELLO)) == 10


def test_tools_and_documents_are_none_rather_than_unknown() -> None:
    template = "{% if tools is not none or documents is not none %}tools{% else %}talk{% endif %}"
    assert make_codec(template).render_chat(HELLO) == "talk"


def test_generation_blocks_and_macros_are_only_text() -> None:
    template = (
        "{% macro say(m) %}[{{ m.content }}]{% endmacro %}"
        "{% for m in messages %}{% generation %}{{ say(m) }}{% endgeneration %}{% if loop.last %}{% break %}{% endif %}"
        "{% endfor %}"
    )
    assert make_codec(template).render_chat([{"role": "user", "content": "a"}]) == "[a]"


def test_a_template_that_refuses_says_why() -> None:
    with pytest.raises(PromptRefused, match="roles must alternate"):
        make_codec("{{ raise_exception('roles must alternate') }}").encode_chat(HELLO)


@pytest.mark.parametrize(
    "template",
    [
        "{{ messages.append(1) }}",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages[9].content }}",
        "{{ messages[0].content + none }}",
        "{{ 1 // 0 }}",
    ],
)
def test_a_template_that_misbehaves_refuses_the_prompt(template: str) -> None:
    with pytest.raises(PromptRefused, match="chat template refuses"):
        make_codec(template).encode_chat(HELLO)


@pytest.mark.parametrize("template", ["", "  \n"])
def test_a_model_without_a_template_cannot_chat(template: str) -> None:
    assert not make_codec(template).can_chat
    with pytest.raises(PromptRefused, match="no chat template"):
        make_codec(template).encode_chat(HELLO)


def test_a_template_that_does_not_compile_makes_the_codec_unusable() -> None:
    with pytest.raises(ChatUnusable, match="cannot be compiled"):
        make_codec("{% for %}")


def test_limits_inside_the_tokenizer_file_neither_cut_nor_fill_a_prompt() -> None:
    tokenizer = byte_tokenizer()
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(length=64)
    assert len(ChatCodec(tokenizer).encode_text("twelve bytes")) == 12


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        ("plain", "plain"),
        ([{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}], "d"),
        ({"rag": "r", "default": "d"}, "d"),
        ([{"name": "tool_use", "template": "t"}], ""),
        (None, ""),
        ([3, {"name": "default"}], ""),
    ],
)
def test_of_several_templates_the_default_is_taken(found: Any, wanted: str) -> None:
    assert named_template(found) == wanted


def load(folder: Path, config: dict[str, Any] | None, template: str = "") -> ChatCodec:
    (folder / "tokenizer").mkdir()
    byte_tokenizer().save(str(folder / "tokenizer" / "tokenizer.json"))
    if config is not None:
        (folder / "tokenizer" / "tokenizer_config.json").write_text(json.dumps(config))
    if template:
        (folder / "tokenizer" / "chat_template.jinja").write_text(template)
    names = sorted(f"tokenizer/{path.name}" for path in (folder / "tokenizer").iterdir())
    tokens = Tokens(
        files=[record_of(folder, name) for name in names],
        eos_ids=[EOS],
        bos_id=BOS,
        pad_id=None,
        adds_bos=False,
        chat_template_path="tokenizer/chat_template.jinja" if template else "",
    )
    return ChatCodec.load(folder, tokens, "tiny")


def test_a_special_token_the_config_lacks_is_undefined_as_in_transformers(tmp_path: Path) -> None:
    config = {"bos_token": {"content": "<s>"}, "eos_token": None, "chat_template": "{{ bos_token }}|{{ eos_token }}"}
    assert load(tmp_path, config).render_chat(HELLO) == "<s>|"


def test_without_a_config_the_manifest_names_the_special_tokens(tmp_path: Path) -> None:
    assert load(tmp_path, None, "{{ bos_token }}|{{ eos_token }}").render_chat(HELLO) == "<s>|</s>"
