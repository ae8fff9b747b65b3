"""shard_export.library.counts, and that nobody tells a number of things without it: "holds 1 files" is no sentence."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from shard_export.library.counts import counted

ROOT = Path(__file__).parents[2]
NOUNS = (
    "addresses|agents|answers|certificates|characters|consoles|days|deliveries|devices|entries|files|hours|inputs|invites|"
    "keys|layers|libraries|lines|matrices|messages|minutes|models|PCs|people|pipelines|positions|prompts|requests|rows|"
    "stages|streams|tokens|users|windows"
)
FOLLOWS = re.compile(rf" (?:(?:more|other|whole|model|cached|different|finished) )?({NOUNS})\b(?!/)(?! spans)")
NEVER_ONE = {
    "context_tokens", "manifest.context_tokens", "self.context_tokens", "spec.window_tokens", "longest", "vocab_size",
    "round(seconds / 86400)", "self.block_tokens * len(self._references)", "max_tokens",
}  # fmt: skip
"""What a model is made of, and what is tens at least."""
NO_NUMBERS = {
    "event.model",
    "'keeps its' if len(left) == 1 else 'keep their'",
    "status.version",
    "port",
    "manifest.family",
    "min(strange)",
    "model_id",
}
"""A noun or a verb follows, and no number stands before it."""
OUTSIDE = {"console/planner/reasons.py", "shard_export/library/counts.py"}
"""The planner's sentence of one PC is another one altogether."""


@pytest.mark.parametrize(
    ("number", "said"), [(0, "0 files"), (1, "1 file"), (2, "2 files"), (21, "21 files"), (-1, "-1 files")]
)
def test_one_is_one(number: int, said: str) -> None:
    assert counted(number, "file") == said


def test_irregular_nouns_verbs_and_figures_of_their_own() -> None:
    assert [counted(number, "entry is", "entries are") for number in (1, 2)] == ["1 entry is", "2 entries are"]
    assert counted(1234, "token", shown="1,234") == "1,234 tokens"
    assert counted(1, "token", shown="    1") == "    1 token"


def fixed_plurals(source: str) -> Iterator[str]:
    """Yield what f-strings tell with a noun that is the same for one."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.JoinedStr):
            for value, text in zip(node.values, node.values[1:], strict=False):
                if not isinstance(value, ast.FormattedValue) or not isinstance(text, ast.Constant):
                    continue
                told, written = (
                    ast.unparse(value.value),
                    "" if value.format_spec is None else ast.unparse(value.format_spec),
                )
                is_constant = re.search(r"\b[A-Z][A-Z_0-9]{2,}\b", told) is not None
                is_fraction = re.search(r"\.[1-9]f|g", written) is not None
                if FOLLOWS.match(str(text.value)) and not is_constant and not is_fraction:
                    yield told


@pytest.mark.parametrize("package", ["agent", "console", "shard_export", "installer"])
def test_nobody_tells_one_thing_as_several(package: str) -> None:
    found = {
        f"{path.relative_to(ROOT)}: {told}"
        for path in sorted((ROOT / package).rglob("*.py"))
        if path.relative_to(ROOT).as_posix() not in OUTSIDE
        for told in fixed_plurals(path.read_text(encoding="utf-8"))
        if told not in NEVER_ONE | NO_NUMBERS
    }
    assert found == set()


def test_logs_do_neither() -> None:
    told = re.compile(rf"%d ({NOUNS})\b")
    sources = [path for package in ("agent", "console", "shard_export") for path in (ROOT / package).rglob("*.py")]
    found = {path.name for path in sources if told.search(path.read_text(encoding="utf-8"))}
    assert found <= {"capacity.py", "shapes.py"}, "what a console can hold, and what a program reads"


def test_a_fixed_plural_would_be_found() -> None:
    assert list(fixed_plurals('said = f"it holds {len(held)} files, {size:.1f} tokens and {MOST_KEYS} keys"')) == [
        "len(held)"
    ]
