"""What is known of an answer that is over: how it ended, what it took, where the time went. Nothing of its text."""

from __future__ import annotations

from typing import NamedTuple

from console.pipeline.spent import Phase
from console.pipeline.types import Details, Ending, Timings, Usage


class EndedAnswer(NamedTuple):
    """One answer; `code` is that of the failure it ended with, `phases` are in seconds since it was asked for.

    That was `age_s` before this was made. `trace` is that of its request.
    """

    request_id: str
    key_id: str
    ending: Ending
    code: str
    usage: Usage
    timings: Timings
    details: Details
    phases: list[Phase]
    age_s: float = 0.0
    trace: int = 0
