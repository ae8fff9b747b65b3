"""`fleet`: many PCs on one console: back after its restart, quick to answer then, and what a steady day costs.

The console is `fallow-console serve` in a process of its own. The PCs are simulated in another: each has its own
certificate of the console's authority, both links over mutual TLS, and the agent's own session, heartbeats and waiting
times (see `simulated_agents`). Both processes share this machine's cores.

1. 500 PCs connect; the console is killed and started again. `reconnect_s`: from the kill until the console counts all
   of them. `handshake_timeouts`: tries that failed because the running console took too long.
2. `control_rtt_p99_ms`: round trips on the control links right afterwards, every PC at moments of its own.
3. 500 more connect, and nothing else happens: `cpu_core_share` and `rss_mb` (the peak since the
   restart) of the console.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from console.capacity import FILES_PER_PC, OTHER_FILES, allow_many_files
from tests.bench.console_process import ConsoleProcess
from tests.bench.identities import take_in
from tests.bench.json_process import JsonProcess

Say = Callable[[str], None]
HEARTBEAT_S = 5.0
WAIT_S = 120.0
UNREACHABLE = "unreachable"
"""What a PC finds while the console is down."""


class Size(NamedTuple):
    """How large a run is: PCs that come back, PCs in all, seconds of round trips and of steady days."""

    returning: int
    agents: int
    round_trips_s: float
    steady_s: float


FULL = Size(500, 1000, 15.0, 30.0)
TRIAL = Size(4, 6, 0.5, 1.0)


def run(*, rounds: int, tokens: int, say: Say) -> dict[str, Any]:
    """Measure once. `rounds` 0 is a trial of the benchmark itself with a few PCs; `tokens` means nothing here."""
    del tokens
    return measure(FULL if rounds else TRIAL, say)


def measure(size: Size, say: Say) -> dict[str, Any]:
    """Measure a fleet of some size. Raises SystemExit when not all PCs come, or this machine cannot hold them."""
    check_open_files(size.agents)
    with tempfile.TemporaryDirectory(prefix="fallow-bench-") as name, ExitStack() as stack:
        folder, pcs = Path(name) / "console", Path(name) / "pcs"
        began_s = time.monotonic()
        server_name = take_in(folder, pcs, size.agents)
        say(f"{size.agents} PCs are members of the fleet after {time.monotonic() - began_s:.1f} s")
        console = ConsoleProcess(folder, heartbeat_s=HEARTBEAT_S)
        stack.callback(console.stop)
        console.start()
        agents = JsonProcess("tests.bench.simulated_agents", [str(pcs), console.url, server_name])
        stack.callback(agents.close)
        figures = _restart(console, agents, size, say)
        figures |= _round_trips(agents, size, say)
        return {"agents": size.agents, "returning": size.returning} | figures | _steady(console, agents, size, say)


def check_open_files(agents: int) -> None:
    """Raise SystemExit if a process of this user may not have as many sockets open as so many PCs take."""
    allowed, needed = allow_many_files(), FILES_PER_PC * agents + OTHER_FILES
    if allowed is not None and allowed < needed:
        message = (
            f"{agents} PCs take {needed} open files in a process, and this user may have {allowed}; raise the hard "
            "limit (`ulimit -Hn`, /etc/security/limits.conf) and run the benchmark again."
        )
        raise SystemExit(message)


def _restart(console: ConsoleProcess, agents: JsonProcess, size: Size, say: Say) -> dict[str, Any]:
    """Let PCs join, kill the console, start it again, and wait until all are back."""
    began_s = time.monotonic()
    agents.ask({"join": size.returning})
    joined_s = _all_in(console, agents, size.returning, 1) - began_s
    say(f"{size.returning} PCs joined in {joined_s:.1f} s: {agents.ask({'report': True})}")
    killed_s = time.monotonic()
    console.kill()
    console.start()
    down_s = time.monotonic() - killed_s
    back_s = _all_in(console, agents, size.returning, 2) - killed_s
    failures = agents.ask({"report": True})["failures"]
    say(f"all back {back_s:.1f} s after the kill, {down_s:.1f} s of which the console was down: {failures}")
    failures.pop(UNREACHABLE, None)
    return {
        "join_s": round(joined_s, 2),
        "reconnect_s": round(back_s, 2),
        "console_down_s": round(down_s, 2),
        "handshake_timeouts": failures.pop("timeout", 0),
        "other_failures": failures,
    }


def _round_trips(agents: JsonProcess, size: Size, say: Say) -> dict[str, Any]:
    found = agents.ask({"round_trips_s": size.round_trips_s})
    say(f"round trips on the control links: {found}")
    if found["answered"] < found["asked"]:
        message = f"Only {found['answered']} of {found['asked']} round trips came back; PCs were lost meanwhile."
        raise SystemExit(message)
    return {f"control_rtt_{name}_ms": found[name] for name in ("p50", "p95", "p99")}


def _steady(console: ConsoleProcess, agents: JsonProcess, size: Size, say: Say) -> dict[str, Any]:
    """Let the rest join and look at the console while nothing else happens."""
    agents.ask({"join": size.agents})
    _all_in(console, agents, size.agents, 1)
    time.sleep(min(HEARTBEAT_S, size.steady_s))
    console.cost()
    before_s, began_s = agents.ask({"report": True})["processor_s"], time.monotonic()
    time.sleep(size.steady_s)
    cost, seen_s = console.cost(), time.monotonic() - began_s
    simulator = (agents.ask({"report": True})["processor_s"] - before_s) / seen_s
    if console.connected() != size.agents:
        message = f"PCs were lost while nothing happened:\n{console.log()[-2000:]}"
        raise SystemExit(message)
    figures = {
        "cpu_core_share": cost.core_share,
        "rss_mb": cost.peak_mb,
        "rss_now_mb": cost.memory_mb,
        "simulator_core_share": round(simulator, 4),
        "heartbeat_s": HEARTBEAT_S,
    }
    say(f"steady with {size.agents} PCs: {figures}")
    return figures


def _all_in(console: ConsoleProcess, agents: JsonProcess, count: int, joined: int) -> float:
    """Wait until all PCs are in, by their own word and the console's; return when (monotonic time)."""
    found = agents.ask({"wait": joined, "timeout_s": WAIT_S})
    deadline_s = time.monotonic() + WAIT_S
    while (connected := console.connected()) < count:
        if time.monotonic() > deadline_s or found["up"] < count:
            message = f"{found['up']} of {count} PCs are in, the console counts {connected}:\n{console.log()[-2000:]}"
            raise SystemExit(message)
        time.sleep(0.05)
    return time.monotonic()
