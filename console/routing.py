"""Which pipeline of a model an answer goes to. Pure: loads and the prompt in, one of the pipelines out.

A pipeline keeps the beginnings of finished answers, so the next turn of a conversation is cheap only where the last one
ran. Prompts that begin alike therefore go to the same pipeline, chosen by rendezvous hashing: each pipeline draws a
number for the beginning and the highest wins, so that a pipeline that comes or goes moves only its own conversations.
But nobody waits behind others for a cached beginning: only pipelines that are about as free as the freest take part.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import msgspec

from console.pipeline.ledger import BLOCK_TOKENS

PREFIX_BLOCKS = 4
"""So much of a prompt decides where it goes: beyond this the turns of a conversation soon differ from others anyway."""
AS_FREE = 0.25
"""How much busier than the freest pipeline one may be, as a share of its places, and still win by its cache."""


class PipelineLoad(msgspec.Struct, frozen=True):
    """One pipeline: `number` names it for as long as the model is deployed.

    `running` and `waiting` are its answers, of which `places` run at once; `room` is how many more may wait.
    """

    number: int
    ready: bool
    running: int
    waiting: int
    places: int
    room: int

    @property
    def share(self) -> float:
        """How busy it is: 1 when every place is taken."""
        return (self.running + self.waiting) / max(1, self.places)

    @property
    def is_full(self) -> bool:
        """Whether nobody more may wait there."""
        return self.room <= 0 and self.running >= self.places


def choose(loads: Sequence[PipelineLoad], key: str, prompt: Sequence[int]) -> PipelineLoad | None:
    """Choose a pipeline for a prompt (token ids) of an API key; None: all of them are full.

    Those that answer come before those that are interrupted. The order of `loads` does not matter.
    """
    open_ones = [load for load in loads if not load.is_full]
    able = [load for load in open_ones if load.ready] or open_ones
    if not able:
        return None
    freest = min(load.share for load in able)
    begins = prefix_of(key, prompt)
    if not begins:
        return min(able, key=lambda load: (load.share, load.number))
    free = [load for load in able if load.share <= freest + AS_FREE]
    return max(free, key=lambda load: (_draw(begins, load.number), load.number))


def prefix_of(key: str, prompt: Sequence[int]) -> bytes:
    """Name the beginning of a prompt, per API key: beginnings are shared within one only. Empty: nothing to share."""
    blocks = min(PREFIX_BLOCKS, len(prompt) // BLOCK_TOKENS)
    if not blocks:
        return b""
    ids = ",".join(map(str, prompt[: blocks * BLOCK_TOKENS]))
    return hashlib.blake2b(ids.encode(), key=hashlib.blake2b(key.encode(), digest_size=16).digest()).digest()


def _draw(begins: bytes, number: int) -> bytes:
    return hashlib.blake2b(begins + number.to_bytes(8, "big"), digest_size=8).digest()
