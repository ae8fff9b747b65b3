"""The self-test passes what is right and finds what is wrong, and the next engine takes over."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from agent.stage import engines
from agent.stage.engines import load, load_selected, stateful
from agent.stage.engines.blocks import BlockPool
from agent.stage.engines.library import Library
from agent.stage.engines.paged import PagedEngine
from agent.stage.engines.selftest import decode_ms, find_problem, sample_layers
from agent.stage.engines.stateful import StatefulEngine
from agent.stage.errors import EngineFailed
from agent.stage.types import EngineName, StreamId
from tests.support.stage import make_row, make_spec
from tests.support.toy_library import toy_library

Patch = Callable[[pytest.MonkeyPatch], None]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("toy")
    toy_library(folder, layers=5, windows=[0, 6, 0, 6, 0])
    return folder


def problem(folder: Path, **fields: Any) -> str:
    spec = make_spec(folder, **{"last": 5, **fields})
    library = Library(folder)
    return find_problem(spec, library, load, sample_layers(library.manifest, spec.first, spec.last))


def test_one_inner_layer_of_each_kind_is_tested(library: Path) -> None:
    manifest = Library(library).manifest
    assert sample_layers(manifest, 0, 5) == {0: 2, 6: 1}
    assert sample_layers(manifest, 3, 5) == {6: 3, 0: 4}
    assert sample_layers(manifest, 0, 1) == {0: 0}


@pytest.mark.parametrize(
    ("engine", "numerics"), [("paged", "exact"), ("stateful", "exact"), ("packed", "exact"), ("paged", "fast")]
)
def test_every_engine_passes_on_this_machine(library: Path, engine: str, numerics: str) -> None:
    assert problem(library, engine=engine, numerics=numerics) == ""


def test_the_ends_of_a_model_are_tested_where_there_is_nothing_else(library: Path) -> None:
    assert problem(library, first=0, last=1, engine="paged") == ""
    assert problem(library, first=4, last=5, engine="paged") == ""


def keep_rejected_tokens(patch: pytest.MonkeyPatch) -> None:
    def truncate(self: Any, length: int) -> None:
        self.length = length

    patch.setattr(stateful._Stream, "truncate", truncate)


def share_another_stream(patch: pytest.MonkeyPatch) -> None:
    def share(self: Any, share: Any) -> None:
        self._held[share.stream] = [self._take() for _ in range(-(-share.tokens // self.block_tokens))]

    patch.setattr(BlockPool, "_share", share)


def see_the_future(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("agent.stage.engines.places._fill_new", lambda mask, _: mask.fill(0))


@pytest.mark.parametrize(
    ("engine", "broken"),
    [("stateful", keep_rejected_tokens), ("paged", share_another_stream), ("packed", see_the_future)],
)
def test_a_cache_that_goes_wrong_is_found_even_among_fast_numerics(
    library: Path, monkeypatch: pytest.MonkeyPatch, engine: str, broken: Patch
) -> None:
    broken(monkeypatch)
    assert "is off by" in problem(library, engine=engine, numerics="fast")


def test_outputs_that_are_no_numbers_are_found(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PagedEngine, "_run", lambda _, rows, tensor: np.full(tensor.shape, np.nan, np.float32))
    assert "is off by nan" in problem(library, engine="paged")


def test_the_next_engine_takes_over_from_one_that_computes_wrongly(
    library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    share_another_stream(monkeypatch)
    engine, selection = load_selected(make_spec(library, last=5, engine="auto"))
    assert isinstance(engine, StatefulEngine)
    assert "Layer" in selection.refused["paged"]
    assert selection.reason.startswith("stateful passed its self-test on CPU, fused")
    engine.close()


def test_the_next_engine_takes_over_from_one_that_fails(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Any:
        raise EngineFailed("The device hung.")

    monkeypatch.setattr(PagedEngine, "_run", fail)
    assert load_selected(make_spec(library, engine="auto"))[1].refused == {
        "paged": "Its self-test could not run: The device hung."
    }


@pytest.mark.parametrize(
    ("passed", "left"), [({}, [0, 6]), ({"paged": [6]}, [0]), ({"paged": [0, 6]}, []), ({"stateful": [0, 6]}, [0, 6])]
)
def test_only_kinds_that_the_engine_has_not_passed_here_are_tested(
    library: Path, monkeypatch: pytest.MonkeyPatch, passed: dict[EngineName, list[int]], left: list[int]
) -> None:
    asked = list[dict[int, int]]()

    def note(*given: Any) -> str:
        asked.append(given[-1])
        return ""

    monkeypatch.setattr(engines, "find_problem", note)
    spec = msgspec.structs.replace(make_spec(library, last=5, engine="auto"), tested=passed)
    engine, selection = load_selected(spec)
    engine.close()
    assert [sorted(kinds) for kinds in asked] == [left]
    assert (selection.engine, selection.tested) == ("paged", left)
    assert (" before, " in selection.reason) == (not left)


def test_a_named_engine_is_not_compared(library: Path) -> None:
    engine, selection = load_selected(make_spec(library, engine="paged"))
    engine.close()
    assert selection.tested == []


def test_a_decode_is_timed_and_leaves_nothing(library: Path) -> None:
    engine = load(make_spec(library))
    assert decode_ms(engine) > 0
    assert engine.length(StreamId(-1)) == 0
    engine.step([make_row(count=3)], np.arange(3))
