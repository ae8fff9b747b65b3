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


def answer(folder: Path, library: Path, *, direct: bool) -> str:
    """Deploy two exact stages and ask; with `direct` wait until the steps take the direct way, and ask over it."""
    with LoopbackFleet(folder, [AgentSettings("first", 1), AgentSettings("second", 1)], direct_links=direct) as fleet:
        model = fleet.admin.add_library(library).model_id
        fleet.deploy(wire.DeployRequest(model=model, stages=2, engine="paged", numerics="exact", context=512))
        deadline_s = time.monotonic() + 60
        while direct and not is_direct(fleet):
            assert time.monotonic() < deadline_s, fleet.admin.status().pipelines[0].links
            time.sleep(0.1)
        text = fleet.chat(QUESTION, max_tokens=24, temperature=0, ignore_eos=True).text
        assert is_direct(fleet) == direct
    return text


def test_stages_linked_directly_answer_like_relayed_ones(tmp_path: Path, smollm2_library: Path) -> None:
    assert answer(tmp_path / "direct", smollm2_library, direct=True) == answer(
        tmp_path / "relayed", smollm2_library, direct=False
    )
