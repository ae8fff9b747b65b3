"""The bytes of a stream's events are JSON whatever the model writes."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from console.api.openai.responses import ChunkWriter
from tests.support.api import finished


@given(text=st.text(), model=st.text(), include_usage=st.booleans())
def test_an_event_is_one_line_of_json_with_exactly_this_text(text: str, model: str, include_usage: bool) -> None:
    writer = ChunkWriter("chatcmpl-1", 5, model, include_usage=include_usage)
    for event, delta in ((writer.role(), {"role": "assistant", "content": ""}), (writer.text(text), {"content": text})):
        assert event.startswith(b"data: ")
        assert event.endswith(b"\n\n")
        assert event.count(b"\n") == 2
        chunk = json.loads(event[6:])
        assert chunk["choices"][0]["delta"] == delta
        assert chunk["model"] == model
        assert ("usage" in chunk) is include_usage


def test_the_end_is_reason_usage_and_done() -> None:
    end = ChunkWriter("chatcmpl-1", 5, "m", include_usage=True).end(finished(3, 4, reason="length")).split(b"\n\n")
    reason, usage = json.loads(end[0][6:]), json.loads(end[1][6:])
    assert reason["choices"][0]["finish_reason"] == "length"
    assert usage["usage"]["total_tokens"] == 7
    assert end[2:] == [b"data: [DONE]", b""]
