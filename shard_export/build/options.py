"""What a user decides about a build."""

from __future__ import annotations

from typing import Literal

import msgspec

from shard_export.build.packed import Mode

Choice = Mode | Literal["auto"]


class BuildOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to build.

    `layers` and `ends` (embed and head) are compression modes, `auto` what suits the source; `group_size` None chooses
    per matrix. `int8_ratio` is the share of the layers' weights that is stored in eight bits instead of four, the most
    sensitive first. `context_tokens` shortens the context (0: the model's own). `replace` allows to put the new
    library in the place of an old one. A draft's vocabulary is checked against the library `target`.
    """

    layers: Choice = "auto"
    ends: Choice = "auto"
    group_size: int | None = None
    int8_ratio: float = 0.0
    context_tokens: int = 0
    replace: bool = False
    role: Literal["target", "draft"] = "target"
    target: str = ""
