"""The toy model with a tokenizer and a chat template, so that a whole console can serve it: one letter a token."""

from __future__ import annotations

from pathlib import Path

import msgspec
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

from shard_export.library.manifest import Tokens
from tests.support.libraries import make_file
from tests.support.local_pipeline import ALPHABET
from tests.support.toy_library import toy_library, write_manifest

TEMPLATE = "{% for message in messages %}{{ message.content }} {% endfor %}"


def talking_library(folder: Path, *, layers: int = 4) -> Path:
    """Write it; ask only in letters, digits, spaces and points."""
    manifest = toy_library(folder, layers=layers)
    tokenizer = Tokenizer(models.WordLevel({letter: token for token, letter in enumerate(ALPHABET)}, unk_token="."))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    tokenizer.decoder = decoders.Fuse()
    files = [
        make_file(folder, "tokenizer/tokenizer.json", tokenizer.to_str().encode()),
        make_file(folder, "tokenizer/chat_template.jinja", TEMPLATE.encode()),
    ]
    tokens = Tokens(files, [2], None, None, False, files[1].path)
    write_manifest(folder, msgspec.structs.replace(manifest, tokens=tokens))
    return folder
