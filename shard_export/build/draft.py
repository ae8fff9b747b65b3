"""A draft model proposes token ids to its target, so both must mean the same by them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokenizers import Tokenizer

from shard_export.build.tokenizer import FOLDER
from shard_export.library.errors import CheckpointError, LibraryDamaged
from shard_export.library.store import load_manifest

if TYPE_CHECKING:
    from pathlib import Path


def check_draft(draft: Path, vocab_size: int, target: Path) -> None:
    """Check that a draft fits its target; both are library folders, `vocab_size` is the draft's.

    Every token must have the same id in both, and the draft must be able to read each id of the target. Padding at
    the end of either vocabulary does not matter. Raises CheckpointError, or LibraryError for a target that is none.
    """
    target_id = load_manifest(target).model_id
    ours, theirs = _tokens(draft), _tokens(target)
    for number in sorted(ours.keys() | theirs.keys()):
        if ours.get(number) != theirs.get(number):
            raise CheckpointError(
                f"The draft does not fit {target_id}: token {number} is {_shown(ours.get(number))} here and "
                f"{_shown(theirs.get(number))} there; choose a draft of the same model family and version."
            )
    if max(theirs, default=0) >= vocab_size:
        raise CheckpointError(
            f"The draft does not fit {target_id}: it reads {vocab_size} tokens and its target writes "
            f"{max(theirs) + 1}; choose a draft of the same model family and version."
        )


def _tokens(library: Path) -> dict[int, str]:
    path = library / FOLDER / "tokenizer.json"
    try:
        vocabulary = Tokenizer.from_file(str(path)).get_vocab(with_added_tokens=True)
    except Exception as error:
        # The package raises plain Exception whatever is wrong with the file.
        raise LibraryDamaged(f"{path} cannot be read ({error}); build the library again.") from error
    return {number: token for token, number in vocabulary.items()}


def _shown(token: str | None) -> str:
    return "nothing" if token is None else repr(token)
