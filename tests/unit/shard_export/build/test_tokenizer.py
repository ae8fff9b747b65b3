"""The text half of a library: templates, end ids and tokens as transformers has them, or no library."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from tokenizers import AddedToken
from transformers import AutoTokenizer

from shard_export.build.rendering import CONVERSATIONS, check_rendering
from shard_export.build.tokenizer import TEMPLATE_PATH, eos_ids, save_tokenizer
from shard_export.library.chat import ChatCodec
from shard_export.library.errors import CheckpointError, TokensDiffer
from tests.support.tokenizers import CHATML, DATED, STRICT, TOKENIZERS, make_tokenizer

if TYPE_CHECKING:
    from pathlib import Path

    from shard_export.library.manifest import Tokens

VOCABULARY = 1000
TEMPLATES = {"chatml": CHATML, "strict": STRICT, "dated": DATED}


def make_source(folder: Path, tokenizer: Any, **files: Any) -> Path:
    """Save a tokenizer as a checkpoint would hold it; `files` replaces texts of files, dots written as `__`."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save_pretrained(str(folder))
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text if isinstance(text, str) else json.dumps(text))
    return folder


def save(source: Path, library: Path, config_eos: Any = None, vocab_size: int = VOCABULARY) -> Tokens:
    tokenizer = AutoTokenizer.from_pretrained(str(source), local_files_only=True)
    return save_tokenizer(tokenizer, SimpleNamespace(eos_token_id=config_eos), source, library, vocab_size)


@pytest.mark.parametrize("template", sorted(TEMPLATES))
@pytest.mark.parametrize("kind", sorted(TOKENIZERS))
def test_every_kind_of_tokenizer_makes_the_tokens_of_transformers(kind: str, template: str, tmp_path: Path) -> None:
    source = make_source(tmp_path / "model", make_tokenizer(kind, TEMPLATES[template]))
    tokens = save(source, tmp_path / "library")
    assert tokens.texts_compared == 2 * (len(CONVERSATIONS) + 1)
    assert tokens.adds_bos == (kind == "metaspace")
    codec = ChatCodec.load(tmp_path / "library", tokens, "tiny")
    ids = codec.encode_chat(CONVERSATIONS["several turns"])
    assert ids.count(1) == (1 if tokens.adds_bos or template == "strict" else 0)


def test_a_jinja_file_beside_the_config_is_used(tmp_path: Path) -> None:
    source = make_source(tmp_path / "model", make_tokenizer("byte-level", None), chat_template__jinja=CHATML)
    tokens = save(source, tmp_path / "library")
    assert tokens.chat_template_path == TEMPLATE_PATH
    assert (tmp_path / "library" / TEMPLATE_PATH).read_text() == CHATML


@pytest.mark.parametrize("beside", ["", " \n"])
def test_an_empty_jinja_file_does_not_hide_the_template_of_the_config(tmp_path: Path, beside: str) -> None:
    source = make_source(tmp_path / "model", make_tokenizer("byte-level", None), chat_template__jinja=beside)
    settings = json.loads((source / "tokenizer_config.json").read_text())
    (source / "tokenizer_config.json").write_text(json.dumps({**settings, "chat_template": CHATML}))
    save(source, tmp_path / "library")
    assert (tmp_path / "library" / TEMPLATE_PATH).read_text() == CHATML


def test_without_any_template_only_the_plain_text_is_compared(tmp_path: Path) -> None:
    source = make_source(tmp_path / "model", make_tokenizer("metaspace", None), chat_template__jinja="")
    tokens = save(source, tmp_path / "library")
    assert tokens.chat_template_path == ""
    assert tokens.texts_compared == len(CONVERSATIONS) + 1
    assert not (tmp_path / "library" / TEMPLATE_PATH).exists()


def test_of_several_templates_the_default_is_kept(tmp_path: Path) -> None:
    templates = {"tool_use": "{{ tools | tojson }}", "default": CHATML}
    source = make_source(tmp_path / "model", make_tokenizer("byte-level", templates))
    tokens = save(source, tmp_path / "library")
    assert (tmp_path / "library" / TEMPLATE_PATH).read_text() == CHATML
    assert [record.path for record in tokens.files if record.path.endswith(".jinja")] == [TEMPLATE_PATH]


def test_several_templates_without_a_default_are_refused_by_name(tmp_path: Path) -> None:
    source = make_source(tmp_path / "model", make_tokenizer("byte-level", {"rag": CHATML, "tool_use": CHATML}))
    with pytest.raises(CheckpointError, match=r"rag, tool_use"):
        save(source, tmp_path / "library")


def test_a_template_that_does_not_compile_is_refused(tmp_path: Path) -> None:
    source = make_source(tmp_path / "model", make_tokenizer("byte-level", "{% for %}"))
    with pytest.raises(CheckpointError, match="cannot be compiled"):
        save(source, tmp_path / "library")


def test_end_ids_come_from_all_three_places(tmp_path: Path) -> None:
    source = make_source(
        tmp_path / "model", make_tokenizer("byte-level"), generation_config__json={"eos_token_id": [4, 2]}
    )
    assert save(source, tmp_path / "library", config_eos=[7, 9]).eos_ids == [2, 4, 7, 9]
    assert eos_ids(SimpleNamespace(eos_token_id=2), SimpleNamespace(), source, VOCABULARY, [11, 2]) == [2, 4, 11]


@pytest.mark.parametrize("token", [VOCABULARY, -2, "</s>", True, 1.5])
def test_an_end_id_the_model_cannot_say_is_refused(tmp_path: Path, token: Any) -> None:
    source = make_source(tmp_path / "model", make_tokenizer("byte-level"))
    with pytest.raises(CheckpointError, match="ends an answer"):
        save(source, tmp_path / "library", config_eos=[2, token])


def test_a_tokenizer_with_more_tokens_than_the_model_is_refused(tmp_path: Path) -> None:
    source = make_source(tmp_path / "model", make_tokenizer("byte-level"))
    with pytest.raises(CheckpointError, match="do not belong together"):
        save(source, tmp_path / "library", vocab_size=100)


def compare(kind: str, *, template: str = CHATML, spoil: Any = None, **changes: Any) -> int:
    """Compare a transformers tokenizer with a codec that was made from it and then changed."""
    theirs = make_tokenizer(kind, template)
    backend = make_tokenizer(kind, template).backend_tokenizer
    if spoil is not None:
        spoil(backend)
    special = {"bos_token": "<s>", "eos_token": "</s>"}
    codec = ChatCodec(backend, **{"bos_id": 1, "template": template, "special_tokens": special, **changes})
    return check_rendering(theirs, codec, template)


def _without_prefix_space(backend: Any) -> None:
    backend.normalizer = None


def _with_one_more_token(backend: Any) -> None:
    backend.add_tokens([AddedToken("capital")])


def test_what_is_equal_passes() -> None:
    assert compare("metaspace", adds_bos=True) == compare("byte-level", template=STRICT)


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("byte-level", {"template": CHATML.replace("\n", " ")}),
        ("byte-level", {"template": CHATML.replace("message.content", "message.content | trim")}),
        ("byte-level", {"template": "{{ raise_exception('no') }}"}),
        ("byte-level", {"spoil": _with_one_more_token}),
        ("metaspace", {"spoil": _without_prefix_space}),
    ],
)
def test_other_tokens_than_transformers_refuse_with_the_ids(kind: str, changes: dict[str, Any]) -> None:
    template = changes.pop("template", CHATML)
    theirs = make_tokenizer(kind, CHATML)
    backend = make_tokenizer(kind).backend_tokenizer
    changes.get("spoil", lambda _backend: None)(backend)
    with pytest.raises(TokensDiffer, match=r"instead of \[\d+|transformers renders") as caught:
        check_rendering(theirs, ChatCodec(backend, template=template), CHATML)
    assert "\n" not in str(caught.value)


def test_a_decoder_that_loses_characters_is_refused() -> None:
    def spoil(backend: Any) -> None:
        backend.decoder = None

    with pytest.raises(TokensDiffer, match="decoded to other characters"):
        compare("byte-level", spoil=spoil)
