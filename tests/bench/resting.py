"""The agent of the `yield` benchmark, without its waits of minutes: `python -m tests.bench.resting FOLDER`.

It starts a second after the last input instead of five minutes, gives the memory back at once instead of after five
seconds (the console's own order to unload would come first), and is not made to wait by many yields.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import msgspec

from agent.link.identity import load_identity
from agent.link.keystore import Keystore
from agent.logs.handlers import set_up
from agent.program import Program
from agent.settings import load_settings, lock_folder
from agent.stopping import stopped_by_signals
from agent.volunteer import machine
from agent.volunteer.policy import Policy

MANY = 10**6


def quick(policy: Policy) -> Policy:
    """Wait for a second where people get minutes; nothing but input counts on a machine that is busy measuring."""
    return msgspec.structs.replace(
        policy,
        startup_delay_s=0.0,
        idle_start_s=1.0,
        idle_locked_s=1.0,
        idle_resume_s=1.0,
        settle_s=0.2,
        release_after_s=0.0,
        cpu_busy_percent=100.0,
        memory_floor_bytes=0,
        memory_floor_percent=0.0,
        disk_reserve_bytes=0,
        heat_limit_celsius=120.0,
    )


def main() -> None:
    """Run until told to stop."""
    folder = Path(sys.argv[1])
    set_up()
    machine.YIELDS_ALLOWED = MANY
    keystore = Keystore("agent")
    settings = load_settings(folder, threads=1)

    async def run() -> None:
        program = Program(folder, settings, keystore, load_identity(folder / "identity", keystore), adjust=quick)
        with stopped_by_signals(program.stop):
            await program.run()

    with lock_folder(folder):
        asyncio.run(run())


if __name__ == "__main__":
    main()
