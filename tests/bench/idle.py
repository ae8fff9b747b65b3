"""`idle`: what an enrolled PC that serves nothing costs: service and tray, while it is available and while it is held.

A real agent that minds its owner, and `fallow-tray` on a desktop (Xvfb, openbox, tint2). While the PC is held its owner
is at it: the mouse moves all the time.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import psutil

from agent.tray.icons import TRAY_COLOURS
from console.bench.figures import percentile
from installer.loopback import AgentSettings, LoopbackFleet
from tests.support.desktop import desktop, wait_for
from tests.support.screens import XServer

Say = Callable[[str], None]
Cost = dict[str, float]
Number = TypeVar("Number", int, float)
PC = "pc"
ROUNDS = 1
CALM_S = 15.0
"""What a start costs is over by then."""
WATCH_S = 60.0
CLOCK_OF_PROCESS = 2
MOVE_EVERY_S = 0.4
"""The agent of the benchmarks waits for a second only."""


def run(*, rounds: int, tokens: int, say: Say) -> dict[str, Any]:
    """Measure; see the README of this folder for what the keys mean. `tokens` means nothing here."""
    del tokens
    found: dict[str, list[dict[str, Cost]]] = {"available": [], "held": []}
    with tempfile.TemporaryDirectory(prefix="fallow-idle-") as name, desktop(Path(name)) as screen:
        os.environ.update(screen.server.environment, XDG_SESSION_TYPE="x11", XDG_RUNTIME_DIR=name)
        os.environ.pop("WAYLAND_DISPLAY", None)
        with LoopbackFleet(Path(name), [AgentSettings(PC, module="tests.bench.resting")], say) as fleet:
            folder = fleet.agent_folder(PC)
            _agent("policy", "enabled=true", "--data", str(folder))  # or the tray asks its question
            screen.start_tray()
            tray = screen.start(sys.executable, "-m", "agent.tray.app", "--data", str(folder), "--language", "en")
            wait_for(lambda: len(screen.panel_pixels(TRAY_COLOURS["idle"])) > 20, "the icon in the tray")
            processes = {"service": psutil.Process(fleet.process(PC).pid), "tray": psutil.Process(tray.pid)}
            for _ in range(rounds):
                fleet.wait_for_agents(1)
                found["available"].append(_watch(processes, fleet, say, "available"))
                _agent("pause", "--data", str(folder))
                with _owner_at(screen.server):
                    found["held"].append(_watch(processes, fleet, say, "held"))
                _agent("resume", "--data", str(folder))
    return {state: _medians(costs) for state, costs in found.items()}


@contextlib.contextmanager
def _owner_at(screen: XServer) -> Iterator[None]:
    """Move the mouse, so often that its owner is never taken for gone."""
    gone = threading.Event()

    def move() -> None:
        for step in itertools.cycle(("3", "-3")):
            if gone.wait(MOVE_EVERY_S):
                return
            screen.type_key("mousemove_relative", "--", step, step)

    thread = threading.Thread(target=move, name="owner")
    thread.start()
    try:
        yield
    finally:
        gone.set()
        thread.join()


def _watch(processes: dict[str, psutil.Process], fleet: LoopbackFleet, say: Say, state: str) -> dict[str, Cost]:
    """Watch each part after it has calmed down: the share of one core it took, the most memory it had."""
    time.sleep(CALM_S)
    began_s, before = time.monotonic(), {part: used_s(process) for part, process in processes.items()}
    memory = dict.fromkeys(processes, 0)
    together = 0
    while time.monotonic() - began_s < WATCH_S:
        time.sleep(1.0)
        now = {part: resident_bytes(process) for part, process in processes.items()}
        memory = {part: max(memory[part], now[part]) for part in now}
        together = max(together, sum(now.values()))
    took_s = time.monotonic() - began_s
    shares = {part: (used_s(process) - before[part]) / took_s for part, process in processes.items()}
    if [agent.volunteering for agent in fleet.admin.agents()] != [state]:
        raise SystemExit(f"The benchmark stopped: the PC was not {state} all the time.")
    costs = {part: _cost(shares[part], memory[part]) for part in processes}
    costs["both"] = _cost(sum(shares.values()), together)
    say(f"{state}: {costs}")
    return costs


def _cost(share: float, size_bytes: int) -> Cost:
    return {"cpu_percent": round(100 * share, 2), "rss_mb": round(size_bytes / 1e6, 1)}


def used_s(process: psutil.Process) -> float:
    """Return the processor time of a process and its children, also of those that have ended and were waited for."""
    return sum(_of_all(process, _used_s))


def _used_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    own_s = times.user + times.system
    if sys.platform == "linux":
        # Ticks of 10 ms are as coarse as all that is measured here; see clock_getcpuclockid(3) for the number.
        with contextlib.suppress(OSError):
            own_s = time.clock_gettime((~process.pid << 3) | CLOCK_OF_PROCESS)
    return own_s + times.children_user + times.children_system


def resident_bytes(process: psutil.Process) -> int:
    """Return the memory of a process and its children; what they share counts more than once."""
    return sum(_of_all(process, lambda one: int(one.memory_info().rss)))


def _of_all(process: psutil.Process, ask: Callable[[psutil.Process], Number]) -> list[Number]:
    found = [ask(process)]
    for child in process.children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # it has just ended
            found.append(ask(child))
    return found


def _medians(rounds: list[dict[str, Cost]]) -> dict[str, Cost]:
    return {
        part: {key: percentile([costs[part][key] for costs in rounds], 0.5) for key in rounds[0][part]}
        for part in rounds[0]
    }


def _agent(*command: str) -> None:
    subprocess.run([sys.executable, "-m", "agent", *command], check=True, capture_output=True)
