"""The tokenizer half of a library: files, special ids, chat template, all held against transformers."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import msgspec

from shard_export.build.rendering import check_rendering, loaded
from shard_export.library.chat import ChatCodec, named_template
from shard_export.library.errors import CheckpointError, CheckpointTorn
from shard_export.library.manifest import Tokens
from shard_export.library.store import record_of, write_synced

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

FOLDER = "tokenizer"
TEMPLATE_PATH = f"{FOLDER}/chat_template.jinja"
_MORE_TEMPLATES = "additional_chat_templates"
# What transformers notes about where and how a tokenizer was loaded: it differs between machines.
_LOCAL_KEYS = (
    "name_or_path",
    "special_tokens_map_file",
    "tokenizer_file",
    "vocab_file",
    "is_local",
    "gguf_file",
    "local_files_only",
    "_commit_hash",
)


def save_tokenizer(
    tokenizer: Any, config: Any, source: Path, library: Path, vocab_size: int, *, more_ends: Sequence[int] = ()
) -> Tokens:
    """Write the tokenizer's files into `library`/tokenizer, compare them with transformers, and describe them.

    `more_ends` are ids that end an answer beside those that tokenizer and configs name.
    Raises CheckpointTorn when no tokenizer.json comes of it, CheckpointError when it names ids the model lacks or has
    an unusable template, TokensDiffer when the files do not make the tokens transformers makes.
    """
    folder = library / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save_pretrained(str(folder))
    if not (folder / "tokenizer.json").is_file():
        raise CheckpointTorn(f"No tokenizer.json can be made from {source}; download the model's tokenizer files too.")
    if (highest := max(tokenizer.get_vocab().values(), default=0)) >= vocab_size:
        raise CheckpointError(
            f"The tokenizer of {source} knows token {highest} but the model has {vocab_size}; "
            "they do not belong together."
        )
    _remove_local_traces(folder / "tokenizer_config.json")
    template = _template_of(tokenizer, source)
    _settle_template(template, folder)
    files = sorted(path.relative_to(library).as_posix() for path in folder.rglob("*") if path.is_file())
    tokens = Tokens(
        files=[record_of(library, name) for name in files],
        eos_ids=eos_ids(tokenizer, config, source, vocab_size, more_ends),
        bos_id=tokenizer.bos_token_id,
        pad_id=tokenizer.pad_token_id,
        adds_bos=_adds_bos(tokenizer),
        chat_template_path=TEMPLATE_PATH if TEMPLATE_PATH in files else "",
    )
    codec = loaded(lambda: ChatCodec.load(library, tokens, source.name))
    return msgspec.structs.replace(tokens, texts_compared=check_rendering(tokenizer, codec, template))


def eos_ids(tokenizer: Any, config: Any, source: Path, vocab_size: int, more: Sequence[int] = ()) -> list[int]:
    """Collect every id that ends an answer: the tokenizer's, the config's and the generation config's.

    Raises CheckpointError for an id the model cannot produce: an answer would never end.
    """
    found: set[Any] = set(more)
    for value in (tokenizer.eos_token_id, getattr(config, "eos_token_id", None), _generation_eos(source)):
        found.update(value if isinstance(value, list) else [] if value is None else [value])
    found.discard(-1)  # how early conversions wrote "none"
    for token in found:
        if isinstance(token, bool) or not isinstance(token, int) or not 0 <= token < vocab_size:
            raise CheckpointError(
                f"{source} names {token!r} as the token that ends an answer, which a model of {vocab_size} tokens does "
                "not have; correct eos_token_id in its config files."
            )
    return sorted(found)


def _generation_eos(source: Path) -> Any:
    path = source / "generation_config.json"
    if not path.is_file():
        return None
    try:
        settings = json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise CheckpointTorn(f"{path} cannot be read ({error}); download it again.") from error
    return settings.get("eos_token_id") if isinstance(settings, dict) else None


def _adds_bos(tokenizer: Any) -> bool:
    ids = tokenizer("a").input_ids
    return tokenizer.bos_token_id is not None and bool(ids) and ids[0] == tokenizer.bos_token_id


def _remove_local_traces(path: Path) -> None:
    if path.is_file():
        settings = json.loads(path.read_text("utf-8"))
        kept = {key: value for key, value in settings.items() if key not in _LOCAL_KEYS}
        write_synced(path, (json.dumps(kept, indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode())


def _template_of(tokenizer: Any, source: Path) -> str:
    """Choose the chat template: the only one, or of several with names the `default`; empty when there is none."""
    template = tokenizer.chat_template
    if isinstance(template, dict):
        if len(template) > 1 and "default" not in template:
            raise CheckpointError(
                f"{source} has the chat templates {', '.join(sorted(template))} and none is named default; "
                "keep the one to use as chat_template.jinja."
            )
        template = template.get("default") or next(iter(template.values()), "")
    if template and template.strip():
        return str(template)
    # An empty .jinja file hides the template that is still in the config.
    config = source / "tokenizer_config.json"
    inside = named_template(json.loads(config.read_text("utf-8")).get("chat_template")) if config.is_file() else ""
    return inside if inside.strip() else ""


def _settle_template(template: str, folder: Path) -> None:
    """Keep one template at one place: the consumers look nowhere else."""
    shutil.rmtree(folder / _MORE_TEMPLATES, ignore_errors=True)
    path = folder / "chat_template.jinja"
    if template:
        write_synced(path, template.encode())
    else:
        path.unlink(missing_ok=True)
