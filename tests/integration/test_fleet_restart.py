"""A console that dies in the middle of answers: clients are told, and after its restart everything is as before."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest

from console.api.admin import types as wire
from installer.loopback import AgentSettings, LoopbackFleet
from tests.support.patience import PATIENCE_S

POLL_S = 0.2


def body_of(fleet: LoopbackFleet, **more: Any) -> dict[str, Any]:
    return {"model": fleet.model, "messages": [{"role": "user", "content": "Count slowly."}], **more}


def read_with_sdk(fleet: LoopbackFleet, started: threading.Event, raised: list[Exception]) -> None:
    http = httpx2.Client(trust_env=False)
    client = openai.OpenAI(
        base_url=f"{fleet.api_url}/v1", api_key=fleet.chat_key, max_retries=0, timeout=PATIENCE_S, http_client=http
    )
    with client:
        try:
            for _ in client.chat.completions.create(**body_of(fleet, max_tokens=1500, temperature=0), stream=True):
                started.set()
        except (openai.APIError, httpx2.TransportError) as error:
            raised.append(error)


def ask_until_answered(fleet: LoopbackFleet) -> dict[str, Any]:
    """Ask again and again as the refusals allow; each has to say when."""
    deadline_s = time.monotonic() + 2 * PATIENCE_S
    headers = {"Authorization": f"Bearer {fleet.chat_key}"}
    url = f"{fleet.api_url}/v1/chat/completions"
    while True:
        said = httpx2.post(url, json=body_of(fleet, max_tokens=8), headers=headers, timeout=60, trust_env=False)
        if said.status_code == 200:
            answer: dict[str, Any] = said.json()
            return answer
        assert said.status_code == 503, said.text
        assert int(said.headers["retry-after"]) > 0
        assert time.monotonic() < deadline_s, fleet.log_tail("console")
        time.sleep(POLL_S)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_clients_of_a_console_that_is_killed_are_told_and_its_plans_come_back(
    tmp_path: Path, smollm2_library: Path
) -> None:
    with LoopbackFleet(tmp_path, [AgentSettings("first", 1), AgentSettings("second", 1)]) as fleet:
        model = fleet.admin.add_library(smollm2_library).model_id
        fleet.deploy(wire.DeployRequest(model=model, stages=2, context=2048))
        (before,) = fleet.admin.status().pipelines
        raised: list[Exception] = []
        started = threading.Event()
        reader = threading.Thread(target=read_with_sdk, args=(fleet, started, raised))
        reader.start()
        assert started.wait(PATIENCE_S)
        fleet.process("console").kill()
        reader.join(2 * PATIENCE_S)
        assert raised, "a cut answer must not pass for a whole one"

        fleet.restart_console()
        assert ask_until_answered(fleet)["usage"]["completion_tokens"] > 0
        (after,) = fleet.admin.status().pipelines
        where = [[(stage.device_name, stage.first, stage.last) for stage in view.stages] for view in (before, after)]
        assert where[0] == where[1]
        assert after.epoch > before.epoch
