"""The subcommands of `fallow-console` for releases of the agent."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from rich.table import Table

from agent.update.releases import SHARE_OF_ALL
from console.api.admin.releases import ReleaseView
from console.cli_tools import Commands, client_of, command, group, show
from console.registry.records import Ring
from console.tables import gigabytes, moment, table


def add_releases(commands: Commands) -> None:
    """Add the subcommands."""
    releases = group(commands, "releases", "Newer versions of the agent, and which PCs are offered them.")
    adding = command(releases, "add", "take a signed release and the archive beside it; nobody is offered it yet", _add)
    adding.add_argument("file", type=Path, metavar="FILE", help="the .release file, on the console's PC")
    command(releases, "list", "list the releases, and how many PCs have them", _list)
    ringing = command(releases, "ring", "offer a release to a ring of PCs", _ring)
    ringing.add_argument("id", help="see: fallow-console releases list")
    ringing.add_argument(
        "ring",
        choices=get_args(Ring),
        help="held: nobody; canary: PCs with the tag canary; early: also those with the tag early, and a tenth of all "
        "others; broad: all, or --percent of them",
    )
    ringing.add_argument("--percent", type=_percent, metavar="N", help="of all PCs at most (default: as before)")
    withdrawing = command(releases, "withdraw", "offer a release to nobody any more; who has it keeps it", _withdraw)
    withdrawing.add_argument("id", help="see: fallow-console releases list")


def _percent(text: str) -> int:
    if not (text.isdecimal() and 1 <= int(text[:9]) <= SHARE_OF_ALL):
        raise argparse.ArgumentTypeError(f"a percentage is a whole number from 1 to {SHARE_OF_ALL}")
    return int(text)


def _add(options: argparse.Namespace) -> int:
    with client_of(options) as console:
        release = console.add_release(options.file.absolute())
    offer = f"fallow-console releases ring {release.release_id} canary"
    return show(options, release, f"{release.version} for {release.platform} is here. Offer it with: {offer}")


def _list(options: argparse.Namespace) -> int:
    with client_of(options) as console:
        view = console.releases()
    return show(options, view, releases_table(view.releases))


def _ring(options: argparse.Namespace) -> int:
    with client_of(options) as console:
        release = console.set_ring(options.id, options.ring, options.percent)
    return show(options, release, f"{release.version} for {release.platform} is offered: {_offered(release)}.")


def _withdraw(options: argparse.Namespace) -> int:
    with client_of(options) as console:
        release = console.withdraw_release(options.id)
    return show(options, release, f"{release.version} for {release.platform} is offered to nobody any more.")


def releases_table(releases: Sequence[ReleaseView]) -> Table:
    """Return the releases, one a row."""
    rows = [
        (
            one.release_id, one.version, one.platform, one.channel, gigabytes(one.size_bytes), _offered(one),
            f"{one.installed}", ", ".join(f"{count} {phase}" for phase, count in sorted(one.under_way.items())),
            moment(one.expires_s),
        )
        for one in releases
    ]  # fmt: skip
    return table(("id", "version", "platform", "channel", "size", "offered to", "PCs", "under way", "expires"), rows)


def _offered(release: ReleaseView) -> str:
    if release.withdrawn_s is not None:
        return "withdrawn"
    return f"broad, {release.percent} %" if release.ring == "broad" else release.ring
