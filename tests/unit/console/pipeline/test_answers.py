"""One answer from sampled ids to events: text, counts and the reason it ended, however many ids come at once."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.stage.types import StreamId
from console.pipeline.answers import Answer
from console.pipeline.plans import Outcome
from console.pipeline.tokens import ModelTokenizer, ToolCodec
from console.pipeline.types import Event, Failed, Finished, FinishReason, GenerationRequest, Text
from tests.support.byte_tokens import BOS, EOS, byte_tokenizer
from tests.support.toy_stages import text_of

SECOND_EOS = BOS
CODEC = ModelTokenizer(ToolCodec(byte_tokenizer()), eos_ids=[EOS, SECOND_EOS])


def make_answer(**fields: Any) -> Answer:
    values: dict[str, Any] = {"prompt_ids": [1, 2, 3], "max_tokens": 100}
    request = GenerationRequest(**(values | fields))
    ticks = itertools.count()
    return Answer(request, CODEC, CODEC.eos_ids, lambda: float(next(ticks)))


def events_of(answer: Answer) -> list[Event]:
    return [answer.events.get_nowait() for _ in range(answer.events.qsize())]


def feed(answer: Answer, rounds: Sequence[Sequence[int]], finish: FinishReason | None) -> list[Event]:
    """Push rounds of ids, the last one with `finish`; nothing more once the answer says that it ended."""
    for number, ids in enumerate(rounds, 1):
        if answer.push(Outcome(StreamId(1), list(ids), finish if number == len(rounds) else None), 1.0):
            break
    return events_of(answer)


def end_of(events: Sequence[Event]) -> tuple[str, int, int]:
    (end,) = (event for event in events if isinstance(event, Finished))
    assert end is events[-1]
    return end.reason, end.usage.prompt_tokens, end.usage.completion_tokens


def ids_of(text: str) -> list[int]:
    return CODEC.encode_text(text)


@pytest.mark.parametrize("eos", [EOS, SECOND_EOS])
def test_every_end_token_of_the_model_ends_the_answer_and_is_counted_but_not_shown(eos: int) -> None:
    events = feed(make_answer(), [ids_of("ab"), [*ids_of("c"), eos]], "stop")
    assert (text_of(events), end_of(events)) == ("abc", ("stop", 3, 4))


def test_the_limit_inside_a_round_is_length() -> None:
    events = feed(make_answer(), [ids_of("abcd")], "length")
    assert (text_of(events), end_of(events)) == ("abcd", ("length", 3, 4))


def test_a_stop_string_inside_a_round_ends_it_there_and_counts_no_token_behind_it() -> None:
    answer = make_answer(stop=["<end>"])
    events = feed(answer, [ids_of("one<e"), ids_of("nd>two three")], None)
    assert (text_of(events), end_of(events)) == ("one", ("stop", 3, 8))
    assert answer.ended


def test_a_stop_string_at_the_very_limit_is_a_stop() -> None:
    events = feed(make_answer(stop=["!"]), [ids_of("ab!")], "length")
    assert (text_of(events), end_of(events)) == ("ab", ("stop", 3, 3))


def test_half_a_stop_string_at_the_end_is_text() -> None:
    events = feed(make_answer(stop=["<end>"]), [ids_of("a<en")], "length")
    assert (text_of(events), end_of(events)) == ("a<en", ("length", 3, 4))


def test_an_emoji_whose_rest_might_be_a_stop_string_is_not_torn() -> None:
    events = feed(make_answer(stop=["\u200d🚀?"]), [[token] for token in ids_of("👩‍🚀!")], "length")
    assert [event.text for event in events if isinstance(event, Text)] == ["👩‍🚀!"]


def test_a_failure_delivers_what_was_held_and_is_an_error() -> None:
    answer = make_answer(stop=["<end>"])
    answer.push(Outcome(StreamId(1), ids_of("Hi 🇫🇷🇩<e"), None), 1.0)
    answer.fail("stage_lost", "A PC left.")
    answer.fail("stage_lost", "It left again.")
    events = events_of(answer)
    assert text_of(events) == "Hi 🇫🇷🇩<e"
    assert isinstance(events[-1], Failed)
    assert (events[-1].reason, answer.ending, answer.cancel()) == ("error", "error", "error")


def test_a_model_taken_down_and_a_client_that_left_are_cancellations() -> None:
    taken = make_answer()
    taken.fail("cancelled", "The model was taken down.")
    left = make_answer()
    assert (taken.ending, left.cancel(), left.ended) == ("cancelled", "cancelled", True)
    assert events_of(left) == []


def test_nothing_is_delivered_after_the_end() -> None:
    answer = make_answer()
    assert end_of(feed(answer, [ids_of("a")], "length"))[0] == "length"
    assert not answer.push(Outcome(StreamId(1), ids_of("b"), None), 2.0)
    answer.fail("stage_lost", "Too late.")
    assert events_of(answer) == []


@given(st.text(max_size=20), st.lists(st.integers(0, 60), max_size=6), st.sampled_from([[], ["b"], ["👩", "ab"]]))
def test_rounds_of_any_size_give_the_same_text_ids_and_counts(text: str, borders: list[int], stop: list[str]) -> None:
    ids = ids_of(text)
    marks = [0, *sorted(min(border, len(ids)) for border in borders), len(ids)]
    rounds = [ids[a:b] for a, b in itertools.pairwise(marks)]
    at_once, cut = (feed(make_answer(stop=stop), pieces, "length") for pieces in ([ids], rounds))
    assert text_of(cut) == text_of(at_once)
    assert end_of(cut) == end_of(at_once)
    tokens = [
        [token for event in events if isinstance(event, Text) for token in event.token_ids] for events in (at_once, cut)
    ]
    assert tokens[0][: len(tokens[1])] == tokens[1] or tokens[1][: len(tokens[0])] == tokens[0]
