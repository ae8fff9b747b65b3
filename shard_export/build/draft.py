"""Refuses a draft whose vocabulary is not its target's before any of it is built."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokenizers import Tokenizer

from shard_export.build.tokenizer import FOLDER
from shard_export.library.errors import CheckpointError, LibraryDamaged
from shard_export.library.store import load_manifest
from shard_export.library.vocabulary import misfit

if TYPE_CHECKING:
    from pathlib import Path


def check_draft(draft: Path, vocab_size: int, target: Path) -> None:
    """Check that a draft fits its target; both are library folders, `vocab_size` is the draft's.

    Raises CheckpointError, or LibraryError for a target that is none.
    """
    target_id = load_manifest(target).model_id
    if found := misfit(_tokenizer(draft), vocab_size, _tokenizer(target)):
        raise CheckpointError(
            f"The draft does not fit {target_id}: {found}; choose a draft of the same model family and version."
        )


def _tokenizer(library: Path) -> Tokenizer:
    path = library / FOLDER / "tokenizer.json"
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:
        # The package raises plain Exception whatever is wrong with the file.
        raise LibraryDamaged(f"{path} cannot be read ({error}); build the library again.") from error
