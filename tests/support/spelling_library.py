"""The toy model with a byte-level tokenizer that can spell JSON: one character a token, and an end token."""

from __future__ import annotations

from pathlib import Path

import msgspec
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from shard_export.library.manifest import Manifest, Tokens
from tests.support.libraries import make_file
from tests.support.toy_library import VOCAB, toy_library, write_manifest

LETTERS = 'abcdefghijklmnopqrstuvwxyz0123456789{}[]":,.-+_<>/\\ETNR!?()='
EOS = VOCAB - 1
BLANK = len(LETTERS)


def spelling_tokenizer() -> Tokenizer:
    """Make the tokenizer: the letters in order, a blank, nothing, and the end."""
    vocabulary = {letter: token for token, letter in enumerate(LETTERS)} | {"Ġ": BLANK}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    fillers = [AddedToken(f"<none{token}>", special=True) for token in range(BLANK + 1, EOS)]
    tokenizer.add_special_tokens([*fillers, AddedToken("</s>", special=True)])
    return tokenizer


def spelling_library(folder: Path, *, template: str = "", **fields: object) -> Manifest:
    """Write the library and return its manifest."""
    manifest = toy_library(folder, **fields)  # type: ignore[arg-type] # passed on as they are
    files = [make_file(folder, "tokenizer/tokenizer.json", spelling_tokenizer().to_str().encode())]
    if template:
        files.append(make_file(folder, "tokenizer/chat_template.jinja", template.encode()))
    tokens = Tokens(files, [EOS], None, None, False, files[1].path if template else "")
    manifest = msgspec.structs.replace(manifest, tokens=tokens)
    write_manifest(folder, manifest)
    return manifest
