"""Masks follow from grammar and ids alone; what a grammar forbids is never sampled; what cannot be read is said."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.stage import tail as tail_module
from agent.stage.errors import GrammarUnusable
from agent.stage.grammar import MAX_GRAMMAR_BYTES, Grammars, can_constrain, problem_of
from agent.stage.tail import Tail
from agent.stage.types import Sampling, StreamId
from tests.support.spelling_library import EOS, spelling_library, spelling_tokenizer
from tests.support.stage import make_row
from tests.support.toy_library import VOCAB, toy_library

SCHEMA = {
    "type": "object",
    "properties": {"ab": {"enum": ["x", "yes", "yet"]}, "n": {"type": "integer"}, "t": {"type": "boolean"}},
    "required": ["ab", "n"],
    "additionalProperties": False,
}
GRAMMAR = f"start: %json {json.dumps(SCHEMA)}"
CODEC = spelling_tokenizer()


@pytest.fixture(scope="module")
def grammars(tmp_path_factory: pytest.TempPathFactory) -> Grammars:
    folder = tmp_path_factory.mktemp("spelling")
    return Grammars.read(folder, spelling_library(folder))


def ids_of(text: str) -> list[int]:
    return list(CODEC.encode(text).ids)


def mask_of(grammars: Grammars, ids: list[int]) -> list[bool]:
    mask: list[bool] = next(grammars.open(GRAMMAR).masks(ids, [])).tolist()
    return mask


def walk(grammars: Grammars, chance: np.random.Generator) -> list[int]:
    """Go by chance through the grammar to its end."""
    constraint, ids = grammars.open(GRAMMAR), list[int]()
    while not ids or ids[-1] != EOS:
        mask = next(constraint.masks(ids, []))
        # Numbers and blanks may go on for ever: rather end than do so.
        ids.append(EOS if mask[EOS] else int(chance.choice(np.flatnonzero(mask))))
    return ids[:-1]


@pytest.mark.parametrize("seed", range(5))
def test_whatever_the_masks_let_through_is_what_the_schema_allows(grammars: Grammars, seed: int) -> None:
    value = json.loads(CODEC.decode(walk(grammars, np.random.default_rng(seed))))
    assert value["ab"] in {"x", "yes", "yet"}
    assert isinstance(value["n"], int)
    assert value.keys() <= {"ab", "n", "t"}


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 50), st.lists(st.tuples(st.integers(0, 40), st.lists(st.integers(0, VOCAB - 1), max_size=4))))
def test_a_mask_is_the_same_whatever_was_asked_before(
    grammars: Grammars, seed: int, visits: list[tuple[int, list[int]]]
) -> None:
    text = walk(grammars, np.random.default_rng(seed))
    constraint = grammars.open(GRAMMAR)
    for length, wrong in visits:
        said, right = text[:length], text[length : length + 2]
        masks = [mask.tolist() for mask in constraint.masks(said, [*right, *wrong])]
        for count, mask in enumerate(masks):
            assert mask == mask_of(grammars, [*said, *[*right, *wrong][:count]])
        assert len(masks) > len(right)


def test_masks_end_before_a_draft_that_is_forbidden_and_behind_the_end(grammars: Grammars) -> None:
    said, closing = ids_of('{"ab":"x","n":'), ids_of("1}")
    assert len(list(grammars.open(GRAMMAR).masks(said, ids_of("1z}")))) == 2
    masks = list(grammars.open(GRAMMAR).masks(said, [*closing, EOS, EOS]))
    assert len(masks) == 3
    assert np.flatnonzero(masks[-1]).tolist() == [EOS]


def test_an_answer_that_breaks_its_grammar_is_refused(grammars: Grammars) -> None:
    with pytest.raises(GrammarUnusable, match="not what its grammar allows"):
        next(grammars.open(GRAMMAR).masks(ids_of("no"), []))


@pytest.mark.parametrize("grammar", ['start: "é"', 'start: "a" "é"'])
def test_what_the_model_has_no_token_for_is_refused(grammars: Grammars, grammar: str) -> None:
    with pytest.raises(GrammarUnusable):
        list(grammars.open(grammar).masks([], ids_of("a")))


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ({"type": "banana"}, "Invalid type: banana"),
        ({"$ref": "http://127.0.0.1:9/a.json"}, "does not fetch"),
        ({"not": {}}, "Unimplemented keys"),
        ({"type": "string", "pattern": "(?=x)y"}, "regex"),
        ({"enum": ["x" * MAX_GRAMMAR_BYTES]}, f"{MAX_GRAMMAR_BYTES} are allowed"),
    ],
)
def test_what_no_answer_can_keep_to_is_said_before_it_is_asked_for(
    grammars: Grammars, schema: object, problem: str
) -> None:
    grammar = f"start: %json {json.dumps(schema)}"
    assert problem in problem_of(grammar)
    with pytest.raises(GrammarUnusable):
        grammars.open(grammar)


def test_what_can_be_kept_to_has_no_problem() -> None:
    assert not problem_of(GRAMMAR)


def test_a_tail_needs_the_tokenizer_and_says_so_for_the_stream_alone(tmp_path: Path) -> None:
    manifest = toy_library(tmp_path)
    assert not can_constrain(tmp_path, manifest)
    with pytest.raises(GrammarUnusable, match="no tokenizer"):
        Grammars.read(tmp_path, manifest)
    tail = Tail(VOCAB)
    rows = [make_row(1, 0, 2, sampling=Sampling(grammar=GRAMMAR), ids=[1, 2]), make_row(2, 0, 1)]
    tail.expect(rows)
    tail.extend(rows)
    ids, _ = tail.pick(rows, np.eye(2, VOCAB, dtype=np.float32))
    assert ids.tolist() == [0, 1]
    assert [refusal.stream for refusal in tail.refusals(rows)] == [StreamId(1)]
    assert "cannot keep answers to a grammar" in tail.refusals(rows)[0].message
    tail.release(StreamId(1))
    assert not tail.refusals(rows)


def test_a_stream_whose_grammar_was_put_away_goes_on_with_it(
    grammars: Grammars, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail_module, "MAX_CONSTRAINTS", 2)
    tail, said = Tail(VOCAB, grammars), {stream: list[int]() for stream in (1, 2, 3)}
    for place in range(12):
        for stream, ids in said.items():
            sampling = Sampling(1.0, seed=stream, grammar=GRAMMAR, answer_start=1)
            row = make_row(stream, place, 1, sampling=None if place else sampling, ids=[0, *ids][-1:])
            tail.expect([row])
            tail.extend([row])
            ids.extend(tail.pick([row], np.zeros((1, VOCAB), np.float32))[0].tolist())
            assert not tail.refusals([row])
    for ids in said.values():
        for place, token in enumerate(ids):
            assert mask_of(grammars, ids[:place])[token]


def test_a_library_with_a_tokenizer_can_constrain(tmp_path: Path) -> None:
    manifest = spelling_library(tmp_path)
    assert can_constrain(tmp_path, manifest)
    (tmp_path / manifest.tokens.files[0].path).unlink()
    assert not can_constrain(tmp_path, manifest)


def test_a_tokenizer_that_is_damaged_or_gone_is_said(tmp_path: Path) -> None:
    manifest = spelling_library(tmp_path)
    file = tmp_path / manifest.tokens.files[0].path
    file.write_text("{}")
    with pytest.raises(GrammarUnusable, match="cannot be used with grammars"):
        Grammars.read(tmp_path, manifest)
    file.unlink()
    with pytest.raises(GrammarUnusable, match="cannot be read"):
        Grammars.read(tmp_path, manifest)


def test_nothing_is_read_any_more_when_the_first_answer_begins(tmp_path: Path) -> None:
    manifest = spelling_library(tmp_path)
    grammars = Grammars.read(tmp_path, manifest)
    (tmp_path / manifest.tokens.files[0].path).unlink()
    assert mask_of(grammars, [])


def test_who_asks_for_no_grammar_loads_nothing_for_it() -> None:
    look = "import sys, agent.stage.tail as t; t.Tail(9); print('llguidance' in sys.modules)"
    seen = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True, timeout=60)
    assert seen.stdout.strip() == "False"


@pytest.mark.parametrize("temperature", [0.0, 1.5])
def test_verify_rows_are_masked_position_by_position(grammars: Grammars, temperature: float) -> None:
    """One row with drafts picks what single rows pick, up to the first draft that is not sampled."""
    prompt, answer = [1, 2, 3], ids_of('{"ab":"ye')
    sampling = Sampling(temperature, seed=4, grammar=GRAMMAR, answer_start=3)
    logits = np.random.default_rng(2).normal(0, 3, (3, VOCAB)).astype(np.float32)

    def pick(tail: Tail, drafts: list[int], wants: int) -> list[int]:
        ids = [*prompt, *answer, *drafts]
        rows = [make_row(1, 0, len(ids), sampling=sampling, ids=ids, wants=wants)]
        tail.expect(rows)
        tail.extend(rows)
        picked: list[int] = tail.pick(rows, logits[len(drafts) + 1 - wants : len(drafts) + 1])[0].tolist()
        return picked

    singles = [pick(Tail(VOCAB, grammars), drafts, 1)[0] for drafts in ([], ids_of("s"), ids_of('s"'))]
    assert set(CODEC.decode([singles[0]])) <= {"s", "t"}
    assert pick(Tail(VOCAB, grammars), ids_of('s"'), 3) == singles
    assert pick(Tail(VOCAB, grammars), ids_of("z"), 2)[0] == singles[0]
