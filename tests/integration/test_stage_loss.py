"""A PC that dies in the middle of answers while nobody can take over: the SDK raises, and no answer looks whole.

Real processes, links and sockets; the toy model in two stages without a standby.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import openai
import pytest

from console.api.admin import types as wire
from installer.loopback import AgentSettings, LoopbackFleet
from tests.support.faults import Fault, Faults
from tests.support.patience import PATIENCE_S
from tests.support.talking_library import talking_library

TOKENS = 480
"""As many as the toy model's context has room for: no answer ends before the PC does."""
SAID: Any = [{"role": "user", "content": "Count slowly."}]
Ask = Callable[[openai.OpenAI, dict[str, Any]], Any]
ASKS: dict[str, Ask] = {
    "chat": lambda client, more: client.chat.completions.create(
        messages=SAID, max_tokens=TOKENS, extra_body={"ignore_eos": True}, **more
    ),
    "two answers": lambda client, more: client.chat.completions.create(
        messages=SAID, max_tokens=TOKENS, n=2, extra_body={"ignore_eos": True}, **more
    ),
    "completion": lambda client, more: client.completions.create(
        prompt="Count slowly.", max_tokens=TOKENS, extra_body={"ignore_eos": True}, **more
    ),
    "response": lambda client, more: client.responses.create(input=NEVER_ENDING, max_output_tokens=TOKENS, **more),
}
NEVER_ENDING = "Count slowly."
"""What the toy model never ends by itself: a response cannot ask for that."""


class Asked(NamedTuple):
    """One request: which, whether as a stream, and when the first of that came."""

    name: str
    streamed: bool
    began: threading.Event

    def read(self, client: openai.OpenAI, model: str) -> list[Any]:
        """Ask, and read to the end whatever comes."""
        options: dict[str, Any] = {"model": model, "temperature": 0}
        if not self.streamed:
            return [ASKS[self.name](client, options)]
        events = []
        for event in ASKS[self.name](client, options | {"stream": True}):
            events.append(event)
            self.began.set()
        return events


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[LoopbackFleet]:
    library = talking_library(tmp_path / "library")
    with LoopbackFleet(tmp_path / "fleet", [AgentSettings("first", 1), AgentSettings("second", 1)]) as fleet:
        model = fleet.admin.add_library(library).model_id
        fleet.deploy(wire.DeployRequest(model=model, stages=2, context=512, streams=16, numerics="exact", recover_s=0))
        yield fleet


@pytest.fixture
def client(fleet: LoopbackFleet) -> Iterator[openai.OpenAI]:
    http = httpx2.Client(trust_env=False)
    with openai.OpenAI(
        base_url=f"{fleet.api_url}/v1", api_key=fleet.chat_key, max_retries=0, timeout=PATIENCE_S, http_client=http
    ) as client:
        yield client


def wait_until(fleet: LoopbackFleet, condition: Callable[[wire.PipelineView], bool]) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not condition(view := fleet.admin.status().pipelines[0]):
        assert time.monotonic() < deadline_s, view
        time.sleep(0.01)


@pytest.mark.timeout(300)
def test_every_answer_of_a_lost_pc_raises(fleet: LoopbackFleet, client: openai.OpenAI) -> None:
    faults_in_turn: tuple[Fault, ...] = ("kill-stage", "kill-agent")
    for fault in faults_in_turn:
        fleet.wait_for_agents(2)
        wait_until(fleet, lambda view: view.state == "ready")
        for asked, raised in lose(fleet, client, fault):
            assert isinstance(raised, openai.APIError), (fault, asked, raised)
            assert raised.code == "stage_lost", (fault, asked, raised)
            assert "second" in raised.message
            if not asked.streamed:
                assert isinstance(raised, openai.InternalServerError)
                assert raised.status_code == 503
                assert int(raised.response.headers["retry-after"]) > 0
    fleet.wait_for_agents(2)
    wait_until(fleet, lambda view: view.state == "ready")
    assert fleet.chat("And now", max_tokens=8, ignore_eos=True).completion_tokens == 8


def lose(fleet: LoopbackFleet, client: openai.OpenAI, fault: Fault) -> list[tuple[Asked, BaseException | None]]:
    """Ask all at once, disturb the last PC while every answer runs, and return what each of them raised."""
    asked = [Asked(name, streamed, threading.Event()) for name in ASKS for streamed in (True, False)]
    with Faults(fleet) as faults, ThreadPoolExecutor(len(asked)) as threads:
        running = [threads.submit(one.read, client, fleet.model) for one in asked]
        for one in asked:
            assert not one.streamed or one.began.wait(PATIENCE_S)
        answers = sum(2 if one.name == "two answers" else 1 for one in asked)
        wait_until(fleet, lambda view: view.running == answers)
        faults.do(fault, "second")
        raised = [future.exception(2 * PATIENCE_S) for future in running]
        faults.undo()
    return list(zip(asked, raised, strict=True))
