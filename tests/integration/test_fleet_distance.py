"""PCs that are far away answer as near ones do, and an answer outlives a moment without contact.

The real model, console and agents as processes; every byte between them, and between the PCs, passes a userspace link.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from console.api.admin import types as wire
from installer.loopback import AgentSettings, LoopbackFleet
from tests.bench.net import NEAR, Network, Shape
from tests.bench.prompts import edits
from tests.bench.served import at_once, listen

STREAMS, TOKENS = 3, 24
FAR = Shape(delay_ms=15, jitter_ms=30, bytes_per_s=2e6)
STALL_S = 3.0
"""Less than what the links' pings take for a loss."""


@pytest.fixture
def network() -> Iterator[Network]:
    with Network() as running:
        yield running


@pytest.fixture
def fleet(tmp_path: Path, network: Network, smollm2_library: Path) -> Iterator[LoopbackFleet]:
    agents = [AgentSettings("first", 1), AgentSettings("second", 1)]
    route = lambda _, port: network.link(port).port  # noqa: E731
    with LoopbackFleet(tmp_path, agents, route=route, direct_links=True) as running:
        model = running.admin.add_library(smollm2_library).model_id
        running.deploy(wire.DeployRequest(model=model, stages=2, numerics="exact", context=512))
        yield running


def texts(fleet: LoopbackFleet) -> list[str]:
    asked = [
        partial(fleet.chat, prompt, max_tokens=TOKENS, temperature=0, ignore_eos=True) for prompt in edits(STREAMS)
    ]
    return [answer.text for answer in at_once(asked)]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_distance_and_a_moment_without_contact_change_no_answer(fleet: LoopbackFleet, network: Network) -> None:
    near = texts(fleet)
    assert len(set(near)) == STREAMS
    network.shape(FAR)
    assert texts(fleet) == near
    network.shape(NEAR)

    def lose_contact(pieces: int) -> None:
        if pieces == 5:
            network.stall()
            threading.Timer(STALL_S, network.heal).start()

    heard = listen(fleet, fleet.model, edits(1)[0], TOKENS, lose_contact)
    assert max(heard.gaps_s) >= STALL_S / 2
    assert heard.text == near[0]
    assert texts(fleet) == near
    (view,) = fleet.admin.status().pipelines
    assert (view.state, view.epoch) == ("ready", 1)
