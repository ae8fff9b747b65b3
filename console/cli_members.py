"""The subcommands of `fallow-console` for who is in the fleet: invites, and the states PCs go through."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from console import tables
from console.api.admin import types as wire
from console.cli_tools import Commands, client_of, command, group, hand_over_secret, show
from console.client import AdminClient

Change = Callable[[AdminClient, argparse.Namespace], None]


def add_members(commands: Commands) -> None:
    """Add the subcommands."""
    invite = command(commands, "invite", "make an invite for PCs to join", _invite)
    invite.add_argument("--uses", type=int, default=1, metavar="N", help="how many PCs may use it")
    invite.add_argument("--hours", type=float, default=24.0, metavar="H", help="how long it can be used")
    invite.add_argument("--hint", default="", metavar="TEXT", help="what it is for")
    invite.add_argument("--tag", action="append", default=[], metavar="TAG", help="tag the PCs with this; repeat it")
    invite.add_argument("--auto-approve", action="store_true", help="PCs that meet the conditions need no approval")
    invite.add_argument(
        "--network", action="append", default=[], metavar="CIDR", help="condition: from this network; repeat it"
    )
    invite.add_argument(
        "--host-name", action="append", default=[], metavar="PATTERN", help="condition: named like lab-*; repeat it"
    )
    invite.add_argument("--keyring", action="store_true", help="condition: the key is protected by a keyring")
    invite.add_argument("--out", type=Path, metavar="FILE", help="write it to a file only you can read")
    invites = group(commands, "invites", "List and revoke invites.")
    command(invites, "list", "list the invites and how often they were used", _invites)
    revoked = command(invites, "revoke", "let no further PC use an invite", _revoke_invite)
    revoked.add_argument("id", help="the invite's id")
    command(commands, "agents", "list the PCs", _agents)
    authority = group(commands, "authority", "The fleet's certificate authority.")
    command(authority, "show", "show the roots and how far a rotation is", _authority)
    rotate = command(authority, "rotate", "announce the next root; it signs 30 days later", _rotate)
    rotate.add_argument("--at-once", action="store_true", help="let it sign now: the present key may be stolen")
    _add_changes(commands)


def _add_changes(commands: Commands) -> None:
    _change(commands, "approve", "let a PC into the fleet", lambda console, o: console.approve(o.id), "in the fleet")
    for name, summary, change, done in (
        ("deny", "turn a PC away", lambda console, o: console.deny(o.id, reason=o.reason), "turned away"),
        ("suspend", "hold a PC for a while", lambda console, o: console.suspend(o.id, reason=o.reason), "suspended"),
    ):
        _with_reason(_change(commands, name, summary, change, done))
    _change(commands, "resume", "let a suspended PC go on", lambda console, o: console.resume(o.id), "in the fleet")
    revoke = command(commands, "revoke", "take a PC out of the fleet at once", _revoke)
    revoke.add_argument("id", help="the PC's id or code")
    how = revoke.add_mutually_exclusive_group()
    how.add_argument("--ban", dest="how", action="store_const", const="ban", default="evict", help="for ever")
    how.add_argument("--retire", dest="how", action="store_const", const="retire", help="it is not used any more")
    _with_reason(revoke)
    tag = _change(commands, "tag", "replace a PC's tags", lambda console, o: console.set_tags(o.id, o.tags), "tagged")
    tag.add_argument("tags", nargs="*", metavar="TAG")
    merge = _change(
        commands, "merge", "let a PC take over from its record before it was enrolled anew",
        lambda console, o: console.merge(o.id, o.former), "merged",
    )  # fmt: skip
    merge.add_argument("former", metavar="FORMER", help="the id or code of the former record, which is retired")


def _change(commands: Commands, name: str, summary: str, change: Change, done: str) -> argparse.ArgumentParser:
    def handler(options: argparse.Namespace) -> int:
        with client_of(options) as console:
            change(console, options)
        return show(options, wire.Done(), f"{options.id} is {done}.")

    parser = command(commands, name, summary, handler)
    parser.add_argument("id", help="the PC's id or code")
    return parser


def _with_reason(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--reason", default="", metavar="TEXT", help="what its user is told")


def _invite(options: argparse.Namespace) -> int:
    with client_of(options) as console:
        invite = console.create_invite(
            uses=options.uses,
            hours=options.hours,
            auto_approve=options.auto_approve,
            hint=options.hint,
            tags=options.tag,
            networks=options.network,
            names=options.host_name,
            keyring=options.keyring,
        )
    return hand_over_secret(options, invite, invite.text, "The invite")


def _invites(options: argparse.Namespace) -> int:
    with client_of(options) as console:
        invites = console.invites()
    return show(options, invites, tables.invites_table(invites))


def _revoke_invite(options: argparse.Namespace) -> int:
    with client_of(options) as console:
        console.revoke_invite(options.id)
    return show(options, wire.Done(), f"The invite {options.id} lets nobody in any more.")


def _agents(options: argparse.Namespace) -> int:
    with client_of(options) as console:
        agents = console.agents()
    return show(options, agents, tables.agents_table(agents))


def _authority(options: argparse.Namespace) -> int:
    with client_of(options) as console:
        view = console.authority()
    return show(options, view, tables.authority_table(view))


def _rotate(options: argparse.Namespace) -> int:
    with client_of(options) as console:
        view = console.rotate_authority(at_once=options.at_once)
    return show(options, view, tables.authority_table(view))


def _revoke(options: argparse.Namespace) -> int:
    with client_of(options) as console:
        console.revoke(options.id, how=options.how, reason=options.reason)
    said = {"evict": "out of the fleet", "ban": "banned", "retire": "retired"}[options.how]
    return show(options, wire.Done(), f"{options.id} is {said}.")
