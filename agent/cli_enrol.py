"""`fallow-agent enrol`, and the identity that `run` begins with.

An invite is a secret: it comes from a file or standard input, never from the command line, which everybody on the PC
can read.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from agent.cli_control import cancel_running, enrol_running
from agent.control.errors import NotRunning
from agent.control.protocol import Told
from agent.first_run import delete_if_of
from agent.joining import (
    MAX_INVITE_BYTES,
    UNHEARD,
    WAITS_NO_MORE,
    delete_invite,
    invite_text,
    join,
    own_name,
    read_invite,
)
from agent.link import invite as invites
from agent.link.approval import EnrolState, await_approval, awaited, withdraw
from agent.link.errors import IdentityCopied, IdentityMissing, IdentityUnreadable
from agent.link.identity import Identity, ensure_made_here, load_identity
from agent.link.keystore import Keystore
from agent.link.leftovers import clear_leftovers
from agent.link.waiting import Waiting
from agent.settings import DataFolderBusy, lock_folder

log = logging.getLogger(__name__)


def add_enrol(commands: argparse._SubParsersAction[argparse.ArgumentParser], common: argparse.ArgumentParser) -> None:
    """Add the command."""
    enrolling = commands.add_parser("enrol", parents=[common], help="join a fleet with an invite")
    enrolling.add_argument(
        "--invite-file", type=Path, metavar="FILE", help="where the invite is (default: standard input)"
    )
    enrolling.add_argument("--name", default=own_name(), help="what the console calls this PC (default: its host name)")
    enrolling.add_argument("--force", action="store_true", help="replace a usable identity")
    enrolling.add_argument("--delete-invite-file", action="store_true", help="delete the invite once it was used")
    enrolling.add_argument("--cancel", action="store_true", help="stop waiting for an administrator's approval")
    enrolling.set_defaults(command=_enrol)


def identity_for_run(folder: Path, invite_file: Path | None, *, wait: bool) -> tuple[Identity | None, str]:
    """Load this PC's identity; only without one does it wait for its approval or use up the invite.

    Who waits for an identity gets None, and why one that is here is of no use, if so: the running agent joins, and
    whoever looks sees how far it is. One that is locked or out of reach is no reason to wait for another.
    """
    keystore = Keystore("agent")
    clear_leftovers(folder / "identity", keystore)
    try:
        identity = load_identity(folder / "identity", keystore)
        ensure_made_here(identity)
    except (IdentityUnreadable, IdentityCopied) as error:
        if not wait:
            raise
        log.warning("%s", error)
        return None, str(error)
    except IdentityMissing:
        if wait:
            return None, ""
        waiting = awaited(folder / "identity")
        if waiting is not None:
            return _go_on_waiting(folder, waiting, invite_file), ""
        if invite_file is None:
            raise
        invite = invites.decode(_read_invite(invite_file))
        identity = _join(folder, invite, name=own_name())
        delete_invite(invite_file)
    return identity, ""


def _go_on_waiting(folder: Path, waiting: Waiting, invite_file: Path | None) -> Identity:
    """Wait for what an earlier run asked for; whatever the answer, the invite it asked with has done its work."""
    telling, keystore = _Telling(), Keystore("agent")
    try:
        return asyncio.run(await_approval(folder / "identity", waiting, keystore=keystore, on_state=telling.take))
    finally:
        if invite_file is not None and awaited(folder / "identity") is None:
            delete_if_of(invite_file, waiting.token_id)


def _cancel(folder: Path) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with lock_folder(folder):
            if awaited(folder / "identity") is None:
                print("This PC does not wait for approval.")
                return 0
            heard = asyncio.run(withdraw(folder / "identity", keystore=Keystore("agent")))
            print(WAITS_NO_MORE if heard else UNHEARD)
    except DataFolderBusy:
        print(_ask_holder(folder, lambda: cancel_running(folder)))
    return 0


def _ask_holder(folder: Path, ask: Callable[[], str]) -> str:
    """Return what the agent that holds the data folder says. Raises ControlError, DataFolderBusy."""
    try:
        return ask()
    except NotRunning:
        # `run` without `--wait`, or another `enrol`: until it is a member it hears no orders.
        raise DataFolderBusy(
            f"A Fallow agent in {folder} joins a fleet just now, or waits to be let in, and takes no orders until "
            "then; end it with Ctrl-C, then try again."
        ) from None


def _enrol(options: argparse.Namespace) -> int:
    if options.cancel:
        return _cancel(options.data)
    text = _read_invite(options.invite_file)
    invite = invites.decode(text)
    options.data.mkdir(parents=True, exist_ok=True)
    try:
        with lock_folder(options.data):
            identity = _join(options.data, invite, name=options.name, force=options.force)
    except DataFolderBusy:
        asking = partial(enrol_running, options.data, text, options.name, _Telling().tell)
        print(_ask_holder(options.data, asking))
    else:
        print(f"Enrolled as device {identity.device_id} of {identity.record.fleet_name}.")
    if options.delete_invite_file and options.invite_file is not None:
        delete_invite(options.invite_file)
    return 0


def _join(folder: Path, invite: invites.Invite, *, name: str, force: bool = False) -> Identity:
    telling = _Telling()
    return asyncio.run(join(folder, invite, Keystore("agent"), name=name, force=force, on_state=telling.take))


class _Telling:
    """Prints each step of enrolling once; waiting for approval repeats itself every few seconds."""

    def __init__(self) -> None:
        self._phase = ""
        self._said = ""

    def take(self, state: EnrolState) -> None:
        self._say(state.phase, state.device_code)
        if state.said and state.said != self._said:
            print(f"Still waiting: {state.said}", flush=True)
        self._said = state.said

    def tell(self, told: Told) -> None:
        self._say(told.phase, told.text)

    def _say(self, phase: str, code: str) -> None:
        if phase == self._phase:
            return
        self._phase = phase
        if phase == "pending":
            print(f"Waiting for an administrator to approve this PC. Its code is {code}.", flush=True)


def _read_invite(path: Path | None) -> str:
    if path is not None:
        return read_invite(path)
    if sys.stdin.isatty():
        print("Paste the invite and press Enter:", file=sys.stderr, flush=True)
        return invite_text(sys.stdin.buffer.readline(MAX_INVITE_BYTES + 1))
    return invite_text(sys.stdin.buffer.read(MAX_INVITE_BYTES + 1))
