"""The real model on a fleet of processes keeps to a schema and calls tools, also when a PC dies amid an answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from console.api.admin import types as wire
from installer.loopback import AgentSettings, LoopbackFleet
from tests.support.patience import PATIENCE_S

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "age": {"type": "integer", "maximum": 120, "minimum": 1},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}
FORMAT = {"type": "json_schema", "json_schema": {"name": "person", "schema": SCHEMA}}
TOOL = {"type": "function", "function": {"name": "add_person", "description": "Adds one.", "parameters": SCHEMA}}
ASKED = [{"role": "user", "content": "Anna is 34 years old. Who is she? Answer in JSON with name and age."}]


@pytest.fixture
def fleet(tmp_path: Path, smollm2_library: Path) -> Iterator[LoopbackFleet]:
    """Three agents; two of them serve the model in `exact`."""
    agents = [AgentSettings(name, 1) for name in ("first", "second", "third")]
    with LoopbackFleet(tmp_path, agents) as running:
        model = running.admin.add_library(smollm2_library).model_id
        running.deploy(wire.DeployRequest(model=model, stages=2, numerics="exact", context=512))
        yield running


def streamed(create: Any, at: int, then: Callable[[], object], **fields: Any) -> str:
    """Return the text of a stream; `then` is called after `at` pieces."""
    text = ""
    chunks = create(stream=True, **fields)
    for count, chunk in enumerate(chunks, 1):
        text += chunk.choices[0].delta.content or ""
        if count == at:
            then()
    return text


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_fleet_keeps_to_schemas_and_calls_tools_and_goes_on_when_the_tail_dies(fleet: LoopbackFleet) -> None:
    client = openai.OpenAI(
        base_url=f"{fleet.api_url}/v1", api_key=fleet.chat_key, max_retries=0, timeout=4 * PATIENCE_S
    )
    create: Any = client.chat.completions.create
    asked: Any = {"model": fleet.model, "messages": ASKED, "max_tokens": 150, "temperature": 0.7, "seed": 5}
    whole = create(response_format=FORMAT, **asked).choices[0]
    assert whole.finish_reason == "stop"
    text = whole.message.content
    value = json.loads(text)
    assert value.keys() == {"name", "age"}

    must_call = {"tools": [TOOL], "tool_choice": "required", "parallel_tool_calls": False}
    call = create(**must_call, **asked).choices[0]
    assert call.finish_reason == "tool_calls"
    for made in call.message.tool_calls:
        assert made.function.name == "add_person"
        assert json.loads(made.function.arguments).keys() == {"name", "age"}

    tail = fleet.admin.status().pipelines[0].stages[-1].device_name
    kill = fleet.process(tail).kill
    assert streamed(create, 4, kill, response_format=FORMAT, **asked) == text
    client.close()
