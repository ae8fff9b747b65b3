"""Two agents as processes, linked directly: the same answers, and the status says which way the steps go."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from console.api.admin import types as wire
from installer.loopback import AgentSettings, LoopbackFleet

if TYPE_CHECKING:
    from pathlib import Path

QUESTION = "What is the capital of France?"


def is_direct(fleet: LoopbackFleet) -> bool:
    """Tell whether the steps into the second stage take the direct way."""
    return [link.way for link in fleet.admin.status().pipelines[0].links] == ["console", "direct"]


def answer(fleet: LoopbackFleet, model: str, stages: int) -> str:
    """Serve the model with so many exact stages and ask; two of them are asked once they are linked directly."""
    fleet.deploy(wire.DeployRequest(model=model, stages=stages, engine="paged", numerics="exact", context=512))
    deadline_s = time.monotonic() + 60
    while stages > 1 and not is_direct(fleet):
        assert time.monotonic() < deadline_s, fleet.admin.status().pipelines[0].links
        time.sleep(0.1)
    text = fleet.chat(QUESTION, max_tokens=24, temperature=0, ignore_eos=True).text
    assert is_direct(fleet) == (stages > 1)
    fleet.admin.undeploy(model)
    return text


def test_stages_linked_directly_answer_like_one_stage(tmp_path: Path, smollm2_library: Path) -> None:
    with LoopbackFleet(tmp_path, [AgentSettings("first", 1), AgentSettings("second", 1)], direct_links=True) as fleet:
        model = fleet.admin.add_library(smollm2_library).model_id
        assert answer(fleet, model, stages=2) == answer(fleet, model, stages=1)
