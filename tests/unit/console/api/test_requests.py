"""What a request becomes for the pipeline."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.stage.types import Sampling
from console.api.http import ApiError
from console.api.openai.completions import CompletionRequest, parse_completion
from console.api.openai.parameters import IgnoredFields
from console.api.openai.requests import ChatRequest, parse_chat
from console.api.openai.response_requests import ResponsesRequest, parse_responses
from console.api.openai.tokens import TokenizeRequest, parse_tokenize


class Ignored(IgnoredFields):
    """Tells nobody."""

    def tell(self, names: Collection[str]) -> None:
        pass


def parse(**fields: object) -> ChatRequest:
    return parse_chat({"model": "m", "messages": [{"role": "user", "content": "Hi"}], **fields}, Ignored())


def test_the_default_is_temperature_1_with_a_seed_of_its_own() -> None:
    first, second = parse().sampling(), parse().sampling()
    assert (first.temperature, first.top_k, first.top_p, first.min_p) == (1.0, 0, 1.0, 0.0)
    assert first.seed != second.seed


@pytest.mark.parametrize("fields", [{"temperature": 0}, {"top_p": 0}, {"temperature": 0, "seed": 5, "top_k": 3}])
def test_temperature_0_and_top_p_0_are_greedy(fields: dict[str, object]) -> None:
    assert parse(**fields).sampling() == Sampling()


@given(st.integers())
def test_every_seed_is_64_bits_and_the_same_each_time(seed: int) -> None:
    sampling = parse(seed=seed).sampling()
    assert 0 <= sampling.seed < 1 << 64
    assert sampling == parse(seed=seed).sampling()


def test_top_k_minus_1_switches_it_off() -> None:
    assert parse(top_k=-1).sampling().top_k == 0


def test_max_completion_tokens_wins_over_max_tokens() -> None:
    assert parse(max_tokens=5, max_completion_tokens=7).wanted_tokens == 7
    assert parse(max_tokens=5).wanted_tokens == 5
    assert parse().wanted_tokens is None


def test_stop_is_a_list_whatever_was_sent() -> None:
    assert parse(stop="a").stops == ["a"]
    assert parse(stop=["a", "b"]).stops == ["a", "b"]
    assert parse(stop=[]).stops == parse().stops == []


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
PARSERS: dict[str, tuple[Callable[[dict[str, Any], IgnoredFields], object], tuple[str, ...]]] = {
    "chat": (parse_chat, (*ChatRequest.__struct_fields__, "tools")),
    "completion": (parse_completion, (*CompletionRequest.__struct_fields__, "echo")),
    "response": (parse_responses, (*ResponsesRequest.__struct_fields__, "text", "tools")),
    "tokens": (parse_tokenize, (*TokenizeRequest.__struct_fields__, "add_special_tokens")),
}


@pytest.mark.parametrize("kind", PARSERS)
@given(st.data())
@settings(max_examples=40)
def test_any_json_object_is_a_request_or_a_400(kind: str, data: st.DataObject) -> None:
    parser, names = PARSERS[kind]
    raw = data.draw(st.dictionaries(st.sampled_from([*names, "other"]), json_values, max_size=6))
    refused = None
    try:
        parser(raw, Ignored())
    except ApiError as error:
        refused = error
    assert refused is None or (refused.status == 400 and refused.body.message.endswith("."))
