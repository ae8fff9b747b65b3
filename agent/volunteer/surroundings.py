"""What the volunteer at work needs around it: the probes together, the work, and machines nobody sits at."""

from __future__ import annotations

import time
from typing import Literal, Protocol

import msgspec

from agent.volunteer.facts import Facts, Memory, Power, Reading
from agent.volunteer.policy import Policy

LinkPhase = Literal["up", "down", "unenrolled", "pending", "suspended", "revoked", "certificate", "clock"]
StagesPhase = Literal["none", "loading", "ready", "ending"]


class Board(Protocol):
    """All probes together; `agent.volunteer.probes.board.ProbeBoard` is one."""

    def snapshot(self) -> Facts:
        """Return what is known now, without waiting."""
        ...

    def watch_closely(self, close: bool) -> None:
        """Ask closely from now on, or seldom again."""
        ...


class Work(Protocol):
    """What this PC does for others; `agent.service.AgentService` is one. Never waits, but for `give_back`."""

    @property
    def stages_phase(self) -> StagesPhase:
        """The most advanced of all stages."""
        ...

    @property
    def link_phase(self) -> LinkPhase:
        """Whether the console can be reached, and if not what kind of reason it has."""
        ...

    def tell_availability(self) -> None:
        """Tell the console at once."""
        ...

    async def give_back(self) -> str:
        """End every stage and wait until the memory is back; returns why it is not, if so. Cancel it as you like."""
        ...


def for_machines(policy: Policy) -> Policy:
    """Return a policy without what only an owner is spared by."""
    return msgspec.structs.replace(
        policy, unattended=True, consent_needed=False, startup_delay_s=0.0, settle_s=0.0, idle_start_s=0.0
    )


def resting_facts(now_s: float) -> Facts:
    """Return what probes would say of a machine with all it needs and nobody at it."""
    plenty = 1 << 50
    return Facts(
        at_s=now_s,
        unix_s=time.time(),
        idle_s=Reading(1e9, "always"),
        memory=Reading(Memory(plenty, plenty), "always"),
        power=Reading(Power(on_mains=True, has_battery=False), "always"),
        disk_free_bytes=Reading(plenty, "always"),
    )
