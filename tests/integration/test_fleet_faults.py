"""What people see when a PC dies in the middle of an answer, and that nothing stays behind."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import psutil
import pytest

from console.api.admin import types as wire
from installer.loopback import AgentSettings, LoopbackFleet
from tests.support.patience import PATIENCE_S

ROOT = Path(__file__).parents[2]


@pytest.fixture
def fleet(tmp_path: Path, smollm2_library: Path) -> Iterator[LoopbackFleet]:
    """Two agents that serve the sample model in two stages."""
    with LoopbackFleet(tmp_path, [AgentSettings("first", 1), AgentSettings("second", 1)]) as running:
        model = running.admin.add_library(smollm2_library).model_id
        running.deploy(wire.DeployRequest(model=model, stages=2, context=2048))
        yield running


def stream_lines(fleet: LoopbackFleet, lines: list[str], started: threading.Event) -> None:
    """Read a streamed answer line by line; `started` is set at the first piece of text."""
    body = {
        "model": fleet.model,
        "messages": [{"role": "user", "content": "Count slowly."}],
        "max_tokens": 300,
        "stream": True,
        "ignore_eos": True,
    }
    headers = {"Authorization": f"Bearer {fleet.chat_key}"}
    with httpx2.stream(
        "POST", f"{fleet.api_url}/v1/chat/completions", json=body, headers=headers, timeout=60, trust_env=False
    ) as response:
        assert response.status_code == 200, response.read()
        for line in response.iter_lines():
            if line.startswith("data:"):
                lines.append(line.removeprefix("data:").strip())
            if len(lines) > 3:
                started.set()


def wait_until_ready(fleet: LoopbackFleet) -> wire.PipelineView:
    """Return the pipeline once its state is said: the answer that proves it may end a moment before."""
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        (view,) = fleet.admin.status().pipelines
        if view.state == "ready":
            return view
        assert time.monotonic() < deadline_s, view
        time.sleep(0.05)


@pytest.mark.timeout(300)
def test_an_answer_survives_a_killed_agent_which_comes_back_as_itself(fleet: LoopbackFleet) -> None:
    before = {agent.device_id for agent in fleet.admin.agents()}
    lines: list[str] = []
    started = threading.Event()
    reader = threading.Thread(target=stream_lines, args=(fleet, lines, started))
    reader.start()
    assert started.wait(60)
    victim = fleet.process("second")
    children = psutil.Process(victim.pid).children(recursive=True)
    victim.send_signal(signal.SIGKILL)
    reader.join(2 * PATIENCE_S)
    assert not reader.is_alive()
    # The first PC holds the whole model and goes on alone.
    assert lines[-1] == "[DONE]"
    pieces = [json.loads(line) for line in lines[:-1]]
    assert sum(bool(piece["choices"]) for piece in pieces) > 3
    assert not [piece for piece in pieces if "error" in piece]
    view = wait_until_ready(fleet)
    assert (len(view.stages), view.probe.ok) == (1, True)
    # The stage's child process does not outlive its agent.
    assert not psutil.wait_procs(children, timeout=PATIENCE_S)[1]
    # The PC comes back as the row it was.
    victim.wait()
    fleet.start_agent("second")
    agents = fleet.wait_for_agents(2)
    assert {agent.device_id for agent in agents} == before
    assert len(fleet.admin.agents()) == 2
    assert fleet.chat("What is the capital of France?", max_tokens=16, temperature=0).text


def test_ctrl_c_during_the_demo_leaves_no_process(smollm2_library: Path) -> None:
    demo = subprocess.Popen(
        [sys.executable, "-m", "installer.demo", "--library", str(smollm2_library)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert demo.stdout is not None
    for line in demo.stdout:
        if "asking" in line:
            break
    family = psutil.Process(demo.pid).children(recursive=True)
    assert len(family) >= 5, "a console, two agents, two stages"
    demo.send_signal(signal.SIGINT)
    out, error = demo.communicate(timeout=60)
    assert demo.returncode == 130, out + error
    assert "nothing is left running" in error
    assert not psutil.wait_procs(family, timeout=PATIENCE_S)[1]
