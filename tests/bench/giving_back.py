"""`yield`: how fast a PC goes back to its owner, while its stage serves four answers.

A real agent under Xvfb, real input by xdotool. `pause` is from before xdotool is started to the last inference that
began after it, read from the page the stage counts in; `release` from the order to end the stage to the end of its
process. After each yield the PC rests, is planned with again, loads, and serves before the next input comes.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil

from agent.stage.gate import Gate
from console.api.admin import types as wire
from console.bench.figures import percentile
from installer.demo import demo_library
from installer.loopback import AgentSettings, LoopbackFleet
from installer.processes import LoopbackError
from tests.bench.json_process import ROOT
from tests.bench.prompts import questions
from tests.support.screens import XServer, x_server

Say = Callable[[str], None]
YIELDS_A_ROUND = 17
STREAMS = 4
WARM_STEPS = 40
"""Inferences of a stage before the next input comes: all four answers run by then."""
WAIT_S = 60.0
PC = "pc"
_BACK = re.compile(r"The memory is back after ([\d.]+) s")


def run(*, rounds: int, tokens: int, say: Say) -> dict[str, Any]:
    """Measure; see the README of this folder for what the keys mean."""
    library = demo_library(ROOT / ".fallow" / "demo", say)
    with tempfile.TemporaryDirectory(prefix="fallow-yield-") as name, x_server() as screen:
        os.environ.update(screen.environment, XDG_SESSION_TYPE="x11", XDG_RUNTIME_DIR=name)
        os.environ.pop("WAYLAND_DISPLAY", None)
        with LoopbackFleet(Path(name), [AgentSettings(PC, module="tests.bench.resting")], say) as fleet:
            agent = psutil.Process(fleet.process(PC).pid)
            fleet.admin.add_library(library)
            model = fleet.admin.libraries()[0].model_id
            fleet.deploy(wire.DeployRequest(model=model, context=1024, streams=STREAMS, stages=1))
            with _load(fleet, model, tokens):
                measured = [_yield(fleet, screen, agent, say) for _ in range(YIELDS_A_ROUND * rounds)]
            log = Path(name) / f"{PC}.log"
            _until(lambda: len(_BACK.findall(log.read_text())) >= len(measured), "the last release was not noted")
            releases_s = [float(found) for found in _BACK.findall(log.read_text())]
    pauses_ms = [pause_ms for pause_ms, _ in measured]
    return {
        "yields": len(measured),
        "pause_p50_ms": round(percentile(pauses_ms, 0.5), 1),
        "pause_p99_ms": round(percentile(pauses_ms, 0.99), 1),
        "release_p50_s": round(percentile(releases_s, 0.5), 3),
        "release_p95_s": round(percentile(releases_s, 0.95), 3),
        "input_to_memory_p95_s": round(percentile([back_s for _, back_s in measured], 0.95), 3),
        "releases": len(releases_s),
    }


@contextlib.contextmanager
def _load(fleet: LoopbackFleet, model: str, tokens: int) -> Iterator[None]:
    """Keep four answers running; one that is cut is asked again."""
    stop = threading.Event()

    def ask(prompts: Iterator[str]) -> None:
        while not stop.is_set():
            try:
                fleet.chat(next(prompts), model=model, max_tokens=8 * tokens, ignore_eos=True)
            except LoopbackError:
                stop.wait(0.1)  # the PC has just been given back

    threads = [threading.Thread(target=ask, args=(itertools.cycle(questions(STREAMS, n)),)) for n in range(STREAMS)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def _yield(fleet: LoopbackFleet, screen: XServer, agent: psutil.Process, say: Say) -> tuple[float, float]:
    """Let the stage serve, then touch the PC; returns (ms to the last inference that began, s until it has ended)."""
    gate, stage = _serving(fleet, agent)
    touched_ns = time.monotonic_ns()
    screen.type_key("mousemove_relative", "--", "3", "3")
    _until(lambda: not stage.is_running(), "the stage did not end")
    back_s = (time.monotonic_ns() - touched_ns) / 1e9
    pause_ms = max(0, gate.entered_ns - touched_ns) / 1e6
    gate.close()
    say(f"no inference began after {pause_ms:.1f} ms; the process had ended after {1000 * back_s:.0f} ms")
    return pause_ms, back_s


def _serving(fleet: LoopbackFleet, agent: psutil.Process) -> tuple[Gate, psutil.Process]:
    """Wait until a stage of the PC serves; returns its page and its process."""
    folder = fleet.agent_folder(PC) / "gates"
    found: list[tuple[Gate, psutil.Process]] = []

    def serves() -> bool:
        for path in folder.glob("*.gate"):
            with contextlib.suppress(OSError, ValueError):
                gate = Gate.open(path)
                stages = _stages_of(agent)
                if gate.entered > WARM_STEPS and not gate.is_shut and len(stages) == 1:
                    found.append((gate, stages[0]))
                    return True
                gate.close()
        return False

    _until(serves, "no stage serves", every_s=0.1)  # looking through all processes takes time from the stage
    return found[0]


def _stages_of(agent: psutil.Process) -> list[psutil.Process]:
    found = []
    for child in agent.children():
        with contextlib.suppress(psutil.Error):
            if "agent.stage.worker" in child.cmdline():
                found.append(child)
    return found


def _until(condition: Callable[[], bool], problem: str, *, every_s: float = 0.002) -> None:
    end_s = time.monotonic() + WAIT_S
    while not condition():
        if time.monotonic() > end_s:
            raise SystemExit(f"The benchmark stopped: {problem} within {WAIT_S:.0f} s.")
        time.sleep(every_s)
