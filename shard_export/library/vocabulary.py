"""A draft model proposes token ids to its target, so both must mean the same by them.

Imports `tokenizers`, which an agent does not have.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers import Tokenizer


def misfit(draft: Tokenizer, vocab_size: int, target: Tokenizer) -> str:
    """Say how a draft does not fit its target, as a clause; empty if it does. `vocab_size` is the draft model's.

    Every token must have the same id in both, and the draft must be able to read each id of the target. Padding at
    the end of either vocabulary does not matter.
    """
    ours, theirs = _tokens(draft), _tokens(target)
    for number in sorted(ours.keys() | theirs.keys()):
        if ours.get(number) != theirs.get(number):
            return f"token {number} is {_shown(ours.get(number))} here and {_shown(theirs.get(number))} there"
    if max(theirs, default=0) >= vocab_size:
        return f"it reads {vocab_size} tokens and its target writes {max(theirs) + 1}"
    return ""


def _tokens(tokenizer: Tokenizer) -> dict[int, str]:
    return {number: token for token, number in tokenizer.get_vocab(with_added_tokens=True).items()}


def _shown(token: str | None) -> str:
    return "nothing" if token is None else repr(token)
