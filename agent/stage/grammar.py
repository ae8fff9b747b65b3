"""Which token ids may follow what an answer says already: a grammar's masks. Only what uses llguidance imports it.

A grammar is text in llguidance's dialect of Lark; `%json {...}` in it stands for whatever a JSON schema allows. A mask
follows from the grammar and the answer's token ids alone, so an answer that is verified, recomputed or moved to another
PC meets the same masks. What a constraint keeps from one call to the next only makes the next one quicker.

Belongs to the thread that computes. Both the console, which refuses a bad grammar, and the tail read it by the same
limits: they bound what a request costs, in memory and in time.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from agent.link.manifests import MAX_TOKENIZER_BYTES, tokenizer_file
from agent.stage.errors import GrammarUnusable
from shard_export.library.manifest import Manifest

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLParserLimits, LLTokenizer

MAX_GRAMMAR_BYTES = 32 << 10
"""Of the grammar as text in UTF-8; it travels with a stream's first row, of which a step may have many."""
_MAX_SYMBOLS, _MAX_LEXER_STATES = 100_000, 20_000
"""Less than a fifth of what llguidance allows by itself, and four times what lists of 2,000 words were seen to take. A
state takes 1 to 2 kB."""

Mask = npt.NDArray[np.bool_]
"""[V]: whether each token id may come next."""


def problem_of(grammar: str) -> str:
    """Say why no answer can be kept to a grammar; empty: it can. Takes up to 0.2 s: not for an event loop."""
    size = len(grammar.encode())
    if size > MAX_GRAMMAR_BYTES:
        return f"it takes {size} bytes as a grammar and {MAX_GRAMMAR_BYTES} are allowed"
    from llguidance import LLMatcher

    text = LLMatcher.grammar_from_lark(grammar)
    is_error, messages = LLMatcher.validate_grammar_with_warnings(text, limits=_limits())
    return first_line(messages[0]) if is_error else ""


def _limits() -> LLParserLimits:
    from llguidance import LLParserLimits

    return LLParserLimits(max_grammar_size=_MAX_SYMBOLS, max_lexer_states=_MAX_LEXER_STATES, verbose_errors=False)


def first_line(message: str) -> str:
    """Return what a message of the grammar library says, without where in the text it was found."""
    line = message.strip().partition("\n")[0]
    if line.startswith("at ") and ": " in line:
        line = line.partition(": ")[2]
    return line.removeprefix("failed to compile JSON schema: ")[:300].rstrip(".")


def can_constrain(folder: Path, manifest: Manifest) -> bool:
    """Whether a tail with this library folder has what it takes to keep answers to grammars."""
    record = tokenizer_file(manifest)
    there = record is not None and (folder / record.path).is_file()
    return there and importlib.util.find_spec("llguidance") is not None


class Grammars:
    """The grammars of one model's answers."""

    def __init__(self, tokenizer: LLTokenizer, vocab_size: int) -> None:
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size

    @classmethod
    def read(cls, folder: Path, manifest: Manifest) -> Grammars:
        """Read the tokenizer in a library folder. Raises GrammarUnusable.

        Takes half a second and more, in which no other thread of the process gets its turn: do it before steps come.
        """
        try:
            from llguidance import LLTokenizer

            record = tokenizer_file(manifest)
            if record is None or record.size_bytes > MAX_TOKENIZER_BYTES:
                raise GrammarUnusable("The model's library has no tokenizer that grammars can use; export it again.")
            text = (folder / record.path).read_text("utf-8")
            return cls(LLTokenizer(text, manifest.vocab_size, list(manifest.tokens.eos_ids)), manifest.vocab_size)
        except (ImportError, OSError) as error:
            raise GrammarUnusable(
                f"The model's tokenizer cannot be read for grammars ({type(error).__name__}); load the model again."
            ) from error
        except ValueError as error:
            raise GrammarUnusable(
                f"The model's tokenizer cannot be used with grammars ({first_line(str(error))}); ask without one."
            ) from error

    def open(self, grammar: str) -> Constraint:
        """Begin an answer. Raises GrammarUnusable."""
        size = len(grammar.encode())
        if size > MAX_GRAMMAR_BYTES:
            raise GrammarUnusable(f"The answer's grammar has {size} bytes and {MAX_GRAMMAR_BYTES} are allowed.")
        from llguidance import LLMatcher

        text = LLMatcher.grammar_from_lark(grammar)
        return Constraint(LLMatcher(self._tokenizer, text, log_level=0, limits=_limits()), self._vocab_size)


class Constraint:
    """One answer's grammar, and how far in it the answer was last seen."""

    def __init__(self, matcher: LLMatcher, vocab_size: int) -> None:
        """Raises GrammarUnusable."""
        self._matcher = matcher
        self._vocab_size = vocab_size
        self._words = np.zeros((1, -(-vocab_size // 32)), np.int32)
        self._taken: list[int] = []
        self._check()

    def masks(self, answer: Sequence[int], drafts: Sequence[int]) -> Iterator[Mask]:
        """Yield what may follow the answer's ids, then what may follow each draft as well.

        Ends before the masks behind a draft that may not be there, or that ends the answer. Raises GrammarUnusable.
        """
        self._go_to(list(answer))
        yield self._mask()
        for draft in drafts:
            # Nothing follows the end, and a draft that cannot be sampled is rejected with all behind it.
            if self._matcher.is_stopped() or not self._matcher.try_consume_tokens([draft]):
                return
            self._taken.append(draft)
            yield self._mask()

    def _go_to(self, ids: list[int]) -> None:
        """Take back what the answer does not have and take in what it has more."""
        taken = self._taken
        same = min(len(ids), len(taken))
        if taken[:same] != ids[:same]:
            same = next(place for place in range(same) if taken[place] != ids[place])
        if same < len(taken):
            self._matcher.rollback(len(taken) - same)
            del taken[same:]
        new = ids[same:]
        if new and self._matcher.try_consume_tokens(new) != len(new):
            self._check()
            raise GrammarUnusable("The answer is not what its grammar allows; send the request again.")
        taken += new
        self._check()

    def _mask(self) -> Mask:
        self._matcher.unsafe_compute_mask_ptr(self._words.ctypes.data, self._words.nbytes)
        self._check()
        bits = np.unpackbits(self._words.view(np.uint8)[0], count=self._vocab_size, bitorder="little")
        mask: npt.NDArray[Any] = bits.view(np.bool_)
        return mask

    def _check(self) -> None:
        if self._matcher.is_error():
            why = first_line(self._matcher.get_error())
            raise GrammarUnusable(f"The answer cannot be kept to its grammar ({why}); ask for something simpler.")
