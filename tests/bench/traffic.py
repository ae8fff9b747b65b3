"""Bytes on the network for each token: everything that passes the PCs' links, TLS and websockets included."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from installer.loopback import LoopbackFleet
from tests.bench.net import Network
from tests.bench.prompts import questions
from tests.bench.served import rate
from tests.bench.two_pcs import deploy, two_pcs

NAME = "measured"
SHORT_TOKENS, LONG_TOKENS = 16, 80


def measure(library: Path, root: Path, cores: Sequence[int], say: Callable[[str], None]) -> dict[str, float]:
    """Serve in two stages and count; returns bytes per token for 1 and for 8 streams.

    The difference between a long and a short answer leaves out the prompts; a first one puts them into the caches.
    """
    with Network() as network:
        route = lambda _, port: network.link(port).port  # noqa: E731
        with LoopbackFleet(root / "traffic", two_pcs(cores), route=route) as fleet:
            deploy(fleet, library, root / "traffic-libraries", {NAME: {"stages": 2, "context": 512, "draft": "none"}})
            found = {}
            for streams in (1, 8):
                counts = []
                for tokens in (SHORT_TOKENS, SHORT_TOKENS, LONG_TOKENS):
                    before = network.carried_bytes
                    rate(fleet, [NAME], questions(streams), tokens)
                    counts.append(network.carried_bytes - before)
                found[f"streams_{streams}"] = round((counts[2] - counts[1]) / (LONG_TOKENS - SHORT_TOKENS) / streams, 1)
    say(f"bytes on the network for each token: {found}")
    return found
