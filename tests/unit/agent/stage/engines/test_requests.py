"""Requests that mix up their states are found, and each stream then gets a compiled model of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agent.stage.engines import load
from agent.stage.engines.requests import Requests, independent
from tests.support.stage import generate, make_row, make_spec
from tests.support.toy_library import VOCAB, toy_library


class FakeRequest:
    """A state of past tokens; several requests may be given the same list."""

    def __init__(self, state: list[int] | None = None, *, resets: bool = True) -> None:
        self.state = [] if state is None else state
        self.resets = resets

    def reset_state(self) -> None:
        if self.resets:
            self.state.clear()


def run_token(request: FakeRequest, token: int, position: int) -> Any:
    request.state.append(token + 1)
    return np.array([[position + 1.0, sum(request.state), len(request.state)]])


class FakeModel:
    """A compiled model whose requests share a state or not."""

    def __init__(self, *, mixed: bool = False) -> None:
        self.made = 0
        self._state: list[int] | None = [] if mixed else None

    def create_infer_request(self) -> FakeRequest:
        self.made += 1
        return FakeRequest(self._state)


def made_of(*, mixed: bool = False, may_share: bool = True) -> tuple[list[FakeModel], Requests]:
    models: list[FakeModel] = []

    def compile_model() -> Any:
        models.append(FakeModel(mixed=mixed))
        return models[-1]

    return models, Requests(compile_model, lambda _: may_share, run_token)


def test_requests_with_states_of_their_own_are_independent() -> None:
    assert independent(FakeRequest(), FakeRequest(), run_token)


def test_a_shared_state_is_found() -> None:
    state: list[int] = []
    assert not independent(FakeRequest(state), FakeRequest(state), run_token)


def test_a_reset_that_does_nothing_is_found() -> None:
    assert not independent(FakeRequest(resets=False), FakeRequest(), run_token)


def test_a_reset_that_reaches_the_other_is_found() -> None:
    second = FakeRequest()

    class Reaching(FakeRequest):
        def reset_state(self) -> None:
            super().reset_state()
            second.reset_state()

    assert not independent(Reaching(), second, run_token)


def test_one_model_serves_all_streams_where_its_requests_keep_apart() -> None:
    models, requests = made_of(mixed=False)
    made = [requests.make() for _ in range(4)]
    assert requests.shared
    assert (len(models), models[0].made) == (1, 4)
    assert all(request.state == [] for request in made)


def test_every_stream_gets_its_own_model_where_they_do_not() -> None:
    models, requests = made_of(mixed=True)
    made = [requests.make() for _ in range(3)]
    assert not requests.shared
    assert len(models) == 3
    assert len({id(request.state) for request in made}) == 3


def test_a_model_that_must_not_be_shared_is_not_even_probed(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any) -> bool:
        pytest.fail("probed")

    monkeypatch.setattr("agent.stage.engines.requests.independent", never)
    models, requests = made_of(may_share=False)
    made = [requests.make() for _ in range(3)]
    assert not requests.shared
    assert [model.made for model in models] == [1, 1, 1]
    assert all(request.state == [] for request in made)


@pytest.mark.parametrize("fused", [True, False])
def test_streams_share_a_model_on_the_cpu_only_if_its_attention_is_fused(
    fused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toy_library(tmp_path)
    monkeypatch.setattr("agent.stage.engines.stateful.fused_layers", lambda _: 3 if fused else 0)
    engine = load(make_spec(tmp_path, engine="stateful"))
    assert engine.remark == f"streams share {'one' if fused else 'no'} compiled model"
    engine.close()


def test_an_engine_computes_the_same_with_a_model_for_each_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toy_library(tmp_path)
    prompts = [np.random.default_rng(seed).integers(0, VOCAB, 9) for seed in range(3)]
    shared = load(make_spec(tmp_path, engine="stateful"))
    assert shared.remark == "streams share one compiled model"
    monkeypatch.setattr("agent.stage.engines.requests.independent", lambda *_: False)
    apart = load(make_spec(tmp_path, engine="stateful"))
    assert apart.remark == "streams share no compiled model"
    assert generate([apart], prompts, 6, batch=3) == generate([shared], prompts, 6, batch=3)
    apart.step([make_row(count=3)], np.arange(3))
