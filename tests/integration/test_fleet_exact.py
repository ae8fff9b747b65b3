"""Two stages give what one stage gives, token for token, whatever else shares the step; in `exact` numerics.

The real model, console and agents as processes, real links. The slow run takes 8 prompts of 96 tokens on both engines.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from agent.stage.types import EngineName
from console.api.admin import types as wire
from console.bench.texts import PROMPTS
from installer.loopback import AgentSettings, LoopbackFleet

SAMPLED = {"temperature": 0.9, "top_p": 0.95, "seed": 7}


def deployed(fleet: LoopbackFleet, library: Path, *, stages: int, engine: EngineName) -> None:
    """Serve the library anew with so many stages."""
    model = fleet.admin.add_library(library).model_id
    if fleet.admin.status().pipelines:
        fleet.admin.undeploy(model)
    fleet.deploy(wire.DeployRequest(model=model, stages=stages, engine=engine, numerics="exact", context=512))


def texts(fleet: LoopbackFleet, *, batch: int, tokens: int, **parameters: object) -> list[str]:
    """Answer all prompts, `batch` at a time."""
    answers: list[str] = []
    for at in range(0, len(PROMPTS), batch):
        prompts = PROMPTS[at : at + batch]
        with ThreadPoolExecutor(len(prompts)) as pool:
            asked = [
                pool.submit(fleet.chat, prompt, max_tokens=tokens, ignore_eos=True, **{"temperature": 0, **parameters})
                for prompt in prompts
            ]
            answers += [one.result().text for one in asked]
    return answers


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[LoopbackFleet]:
    """Two agents that use one thread each."""
    with LoopbackFleet(tmp_path, [AgentSettings("first", 1), AgentSettings("second", 1)]) as running:
        yield running


def compare(fleet: LoopbackFleet, library: Path, engine: EngineName, tokens: int) -> None:
    """Take one stage, eight at a time as the reference; everything else must equal it."""
    deployed(fleet, library, stages=1, engine=engine)
    reference = texts(fleet, batch=8, tokens=tokens)
    assert len(set(reference)) == len(PROMPTS)
    assert texts(fleet, batch=3, tokens=tokens) == reference
    assert texts(fleet, batch=1, tokens=tokens) == reference
    deployed(fleet, library, stages=2, engine=engine)
    for batch in (1, 3, 8):
        assert texts(fleet, batch=batch, tokens=tokens) == reference, f"two stages, {batch} at a time"


@pytest.mark.timeout(600)
def test_two_paged_stages_answer_like_one_in_any_company(fleet: LoopbackFleet, smollm2_library: Path) -> None:
    compare(fleet, smollm2_library, "paged", tokens=8)
    # A seed decides the text whatever else runs: alone, then among seven others.
    alone = fleet.chat(PROMPTS[0], max_tokens=12, ignore_eos=True, **SAMPLED).text
    assert texts(fleet, batch=8, tokens=12, **SAMPLED)[0] == alone


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("engine", ["paged", "stateful"])
def test_two_stages_answer_like_one_for_96_tokens(
    fleet: LoopbackFleet, smollm2_library: Path, engine: EngineName
) -> None:
    compare(fleet, smollm2_library, engine, tokens=96)
