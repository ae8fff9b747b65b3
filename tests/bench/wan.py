"""`wan`: two stages on PCs that are far away, naive and with everything switched on, by the delay of a hop.

`hop_ms` is how long bytes travel one way over one link: between the console and a PC, and between the PCs. Every byte
passes a userspace link with that delay. Both sides do the same work, correcting texts through the chat template:

- `naive`: one answer at a time, one token a traversal, no speculation, and the console relays between the stages.
- `full`: eight answers at once, steps in flight, a direct link between the stages, prompt lookup with as many drafts as
  pay. `full_2` is the same with two answers, as the paper's figure is.

Rates are answer tokens per second after the first token, over all streams; each is the median of the rounds after a
warm-up in which the number of drafts finds its level. `k` is the drafts that a round of a stream carried in the end.
"""

from __future__ import annotations

import itertools
import os
import statistics
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from installer.demo import demo_library
from installer.loopback import LoopbackFleet
from tests.bench.json_process import ROOT
from tests.bench.net import Network, Shape
from tests.bench.prompts import edits, numbered
from tests.bench.served import rate
from tests.bench.two_pcs import deploy, pipeline, two_pcs

Say = Callable[[str], None]
HOPS_MS = (0, 10, 50, 100)
NAIVE, FULL, FULL_2 = "naive", "full", "full-2"
STREAMS = {NAIVE: 1, FULL: 8, FULL_2: 2}
DRAFTS = {NAIVE: "none", FULL: "lookup", FULL_2: "lookup"}
NAIVE_SHARE = 4
"""A naive answer is this much shorter: its rate does not depend on its length, and it takes very long."""


def run(*, rounds: int, tokens: int, say: Say) -> dict[str, Any]:
    """Measure every distance; returns `rows`."""
    library = demo_library(ROOT / ".fallow" / "demo", say)
    cores = sorted(os.sched_getaffinity(0))[:2]
    with tempfile.TemporaryDirectory(prefix="fallow-bench-") as folder_name, Network() as network, ExitStack() as stack:
        root = Path(folder_name)

        def route(_: str, port: int) -> int:
            return network.link(port).port

        # A fleet each: a PC that is reached through a link has one port, so one stage of it can be linked directly.
        fleets: dict[str, LoopbackFleet] = {}
        for name, streams in STREAMS.items():
            folder, direct = root / name, name != NAIVE
            fleet = stack.enter_context(LoopbackFleet(folder, two_pcs(cores), route=route, direct_links=direct))
            settings = {"stages": 2, "context": 512, "streams": streams, "draft": DRAFTS[name]}
            deploy(fleet, library, folder / "libraries", {name: settings})
            fleets[name] = fleet
        rows, numbers = [], itertools.count(1)
        for hop_ms in HOPS_MS:
            network.shape(Shape(delay_ms=hop_ms))
            rows.append(_row(fleets, hop_ms, rounds, tokens, numbers))
            say(f"{rows[-1]}")
        ways = {name: [link.way for link in pipeline(fleet, name).links] for name, fleet in fleets.items()}
    return {"rows": rows, "stages": 2, "ways": ways, "rounds": rounds, "tokens": tokens, "numerics": "fast"}


def _row(
    fleets: dict[str, LoopbackFleet], hop_ms: int, rounds: int, tokens: int, numbers: Iterator[int]
) -> dict[str, Any]:
    rates: dict[str, list[float]] = {name: [] for name in fleets}
    for round_ in range(rounds + 1):
        for name, found in rates.items():
            length = max(8, tokens // NAIVE_SHARE) if name == NAIVE else tokens
            value = rate(fleets[name], [name], numbered(edits(STREAMS[name], round_), numbers), length)
            if round_:
                found.append(value)
    median = {name: statistics.median(found) for name, found in rates.items()}
    guessing = pipeline(fleets[FULL], FULL).speculation
    return {
        "hop_ms": hop_ms,
        "naive": round(median[NAIVE], 2),
        "full": round(median[FULL], 2),
        "ratio": round(median[FULL] / median[NAIVE], 2),
        "k": round(guessing.drafts_per_round, 2),
        "acceptance": round(guessing.acceptance, 3),
        "full_2": round(median[FULL_2], 2),
        "ratio_2": round(median[FULL_2] / median[NAIVE], 2),
    }
