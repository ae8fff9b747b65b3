"""`fallow-agent update` and `self-test`, and how `run` goes on with an update."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable, Sequence
from importlib.metadata import version

import msgspec

from agent.cli_control import give_order
from agent.control.protocol import CheckUpdate, Done
from agent.update.errors import InstallationBroken
from agent.update.launch import become, begin
from agent.update.layout import Installation, running_program
from agent.update.permission import Means, find_means
from agent.update.proof import EXIT_AGAIN, Trial

log = logging.getLogger(__name__)

EXIT_UNFIT = 1


def add_update(commands: argparse._SubParsersAction[argparse.ArgumentParser], common: argparse.ArgumentParser) -> None:
    """Add the commands."""
    updating = commands.add_parser("update", parents=[common], help="ask for a newer version of this agent")
    how = updating.add_mutually_exclusive_group()
    how.add_argument("--check", action="store_true", help="say whether there is one; it comes by itself (default)")
    how.add_argument("--now", action="store_true", help="install it now, even while somebody uses this PC")
    updating.set_defaults(command=_update)
    testing = commands.add_parser("self-test", parents=[common], help="say whether this version works on this PC")
    testing.set_defaults(command=_self_test)


def _update(options: argparse.Namespace) -> int:
    answer = give_order(options.data, lambda id_: CheckUpdate(id_, options.now))
    print(answer.said if isinstance(answer, Done) else "")
    return 0


def _self_test(options: argparse.Namespace) -> int:
    from agent.update.fitness import SelfTest

    del options
    found = SelfTest(version("fallow"), problems_here())
    print(msgspec.json.encode(found).decode())
    return EXIT_UNFIT if found.problems else 0


def problems_here() -> list[str]:
    """Load what the agent needs and say what does not work."""
    from agent.devices import ask_devices

    try:
        import agent.program
        import agent.stage.worker
        import agent.update.trust  # noqa: F401
    except ImportError as error:
        return [f"A part of the program cannot be loaded ({error})."]
    return [] if ask_devices().devices else ["OpenVINO does not work, or finds no device."]


def run_with_updates(arguments: Sequence[str], serve: Callable[[Means, Trial | None], bool]) -> int:
    """Try a new version first if one is wanted, else serve; returns the exit code.

    `arguments` are those of this program, for the one that takes its place. `serve` says whether it is to be started
    again.
    """
    trial, means = Trial.from_environment(), find_means()
    installation = means.installation
    if installation is not None and trial is None:
        current = _current(installation)
        if current != running_program().resolve().parent.name:
            # Started by an older version's window: what runs is what proved itself last.
            return become(installation.program(current), arguments)
        code = begin(installation, arguments)
        if code is not None:
            return code
    if not serve(means, trial) or installation is None:
        return 0
    # Whoever started this one on trial waits for it and starts the next.
    return EXIT_AGAIN if trial is not None else become(installation.program(installation.current()), arguments)


def _current(installation: Installation) -> str:
    try:
        return installation.current()
    except InstallationBroken as error:
        log.warning("%s", error)
        return running_program().resolve().parent.name
