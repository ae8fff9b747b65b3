"""The bytes of a stream's events are JSON whatever the model writes."""

from __future__ import annotations

import json

from hypothesis import assume, example, given
from hypothesis import strategies as st

from console.api.openai.bodies import ChunkWriter
from console.api.openai.shapes import Identity
from console.pipeline.dialects import THOUGHT_MARKS
from console.pipeline.types import Text
from tests.support.api import finished


@example(text="\r", model="", include_usage=False, place=0)
@example(text=" <thi", model="", include_usage=True, place=1)
@given(text=st.text(min_size=1), model=st.text(), include_usage=st.booleans(), place=st.integers(0, 31))
def test_an_event_is_one_line_of_json_with_exactly_this_text(
    text: str, model: str, include_usage: bool, place: int
) -> None:
    writer = ChunkWriter(Identity("chatcmpl-1", 5, model), answers=32, include_usage=include_usage)
    # What might begin a thought waits for what comes behind it.
    assume(not text.lstrip().startswith(tuple(marks.opens for marks in THOUGHT_MARKS)))
    rendered = writer.render(place, Text(text, [1])) + writer.render(place, Text("b", [1]))
    assert rendered.endswith(b"\n\n")
    events = rendered.split(b"\n\n")[:-1]
    deltas = []
    for event in events:
        assert event.startswith(b"data: ")
        assert b"\n" not in event
        chunk = json.loads(event[6:])
        (choice,) = chunk["choices"]
        deltas.append(choice.pop("delta"))
        assert choice == {"index": place, "logprobs": None, "finish_reason": None}
        assert chunk["model"] == model
        assert ("usage" in chunk) is include_usage
    assert deltas[0] == {"role": "assistant", "content": ""}
    assert all(delta.keys() == {"content"} for delta in deltas[1:])
    assert "".join(delta["content"] for delta in deltas) == text + "b"
    assert writer.render(place, Text(text, [1])).count(b"\n\n") == 1


def test_the_end_is_reason_usage_and_done() -> None:
    writer = ChunkWriter(Identity("chatcmpl-1", 5, "m"), include_usage=True)
    writer.render(0, Text("a", [1]))
    end = writer.render(0, finished(3, 4, reason="length")).split(b"\n\n")
    assert writer.complete
    reason, usage = json.loads(end[0][6:]), json.loads(end[1][6:])
    assert reason["choices"][0]["finish_reason"] == "length"
    assert usage["usage"]["total_tokens"] == 7
    assert end[2:] == [b"data: [DONE]", b""]


def test_a_stream_of_several_answers_ends_with_the_last_and_counts_the_prompt_once() -> None:
    writer = ChunkWriter(Identity("chatcmpl-1", 5, "m"), answers=2, include_usage=True)
    first = writer.render(1, finished(3, 4))
    assert b"[DONE]" not in first
    assert not writer.complete
    events = [json.loads(event[6:]) for event in writer.render(0, finished(3, 2)).split(b"\n\n")[:-2]]
    assert [event["choices"][0]["index"] for event in events[:-1]] == [0, 0]
    assert events[-1]["usage"]["prompt_tokens"] == 3
    assert events[-1]["usage"]["completion_tokens"] == 6
