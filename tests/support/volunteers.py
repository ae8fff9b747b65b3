"""A PC's probes as a test plays them, and a policy without waits of minutes."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from agent.volunteer.clock import steady_s
from agent.volunteer.facts import Facts, Reading
from agent.volunteer.policy import Policy
from agent.volunteer.surroundings import resting_facts


@dataclass
class PlayedBoard:
    """A PC at rest, until the test says otherwise."""

    idle_s: float = 1e6
    closely: list[bool] = field(default_factory=list)

    def snapshot(self) -> Facts:
        return msgspec.structs.replace(resting_facts(steady_s()), idle_s=Reading(self.idle_s, "played"))

    def watch_closely(self, close: bool) -> None:
        self.closely.append(close)


def quick(policy: Policy) -> Policy:
    return msgspec.structs.replace(policy, startup_delay_s=0.0, settle_s=0.0, idle_start_s=0.2, release_after_s=0.0)
