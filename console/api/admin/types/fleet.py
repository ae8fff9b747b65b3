"""Invites, PCs and the policy they follow. Times are Unix seconds, sizes bytes."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from agent.volunteer.wishes import PlainValue
from console.api.admin.types.common import Name, ReasonText, TagList
from console.registry.records import InviteRecord

Link = Literal["connected", "offline"]


class NewInvite(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Ask for an invite usable by `uses` PCs for `hours`."""

    uses: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 1
    hours: Annotated[float, msgspec.Meta(gt=0, le=24 * 30)] = 24.0
    auto_approve: bool = False
    hint: Annotated[str, msgspec.Meta(max_length=200)] = ""
    tags: TagList = []
    """Given to the PCs that use the invite."""
    networks: Annotated[list[Name], msgspec.Meta(max_length=64)] = []
    """With `names` and `keyring` the rule of automatic approval: see ApprovalRule."""
    names: Annotated[list[Name], msgspec.Meta(max_length=64)] = []
    keyring: bool = False


class Invite(msgspec.Struct, frozen=True):
    """A new invite. `text` holds the secret and is shown only this once."""

    token_id: str
    text: str
    expires_s: float


class Invites(msgspec.Struct, frozen=True):
    """All invites, without their secrets."""

    invites: list[InviteRecord]


class Agent(msgspec.Struct, frozen=True):
    """A PC as the admin sees it: its record and, while connected, what it said last."""

    device_id: str
    name: str
    state: str
    reason: str
    device_code: str
    link: Link
    seen_s: float | None
    os: str = ""
    version: str = ""
    memory_bytes: int = 0
    memory_free_bytes: int = 0
    devices: list[str] = []
    volunteering: str = ""
    held_because: list[str] = []
    key_protection: str = ""
    tags: list[str] = []
    console: str = ""
    """The console it is connected to, of several that share a registry; empty: this one."""
    same_machine: list[str] = []
    """Other records that seem to be of the same machine: candidates for a merge."""
    rests_percent: int | None = None
    """How likely it rests in the next hours, by its habits; None: it does not tell."""
    round_trip_ms: float | None = None
    """Between it and the console, measured last; None: never. As well `down_bytes_per_s`, from there to it."""
    down_bytes_per_s: float | None = None
    update: str = ""
    """How far an update of its agent is, or why there are none, in a few words; empty: nothing is under way."""

    @property
    def version_text(self) -> str:
        """The agent's version, and in which phase an update is."""
        about = self.update.partition(":")[0]
        return f"{self.version} ({about})" if about not in ("", "off") else self.version


class Agents(msgspec.Struct, frozen=True):
    """The fleet."""

    agents: list[Agent]


class Reason(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why a PC is denied or suspended; its user reads it."""

    reason: ReasonText = ""


class Revocation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Take a PC out of the fleet; a banned one (`ban`, or `how`) cannot enrol again with any key it had."""

    ban: bool = False
    how: Literal["evict", "ban", "retire"] = "evict"
    reason: ReasonText = ""


class Tags(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A PC's tags from now on."""

    tags: TagList


class Merge(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Let a PC that was enrolled anew take over from its `former` record (id or code)."""

    former: Name


class PolicyScope(msgspec.Struct, frozen=True):
    """What the administrator wants of the PCs with `tag`, or of all (empty): only rows that say something."""

    tag: str
    values: dict[str, PlainValue]
    revision: int
    updated_s: float


class PolicyRefusal(msgspec.Struct, frozen=True):
    """A PC that does not take the policy: the revision it keeps, and its sentence."""

    device_id: str
    name: str
    revision: int
    message: str


class PolicyView(msgspec.Struct, frozen=True):
    """What is wanted of volunteering PCs. `built_in` is what holds where nobody says anything."""

    scopes: list[PolicyScope]
    refusals: list[PolicyRefusal]
    built_in: dict[str, PlainValue]


class PolicyChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Set rows for all PCs (`tag` empty) or those with a tag; null takes a row back."""

    values: Annotated[dict[str, PlainValue], msgspec.Meta(min_length=1, max_length=100)]
    tag: Annotated[str, msgspec.Meta(max_length=64)] = ""
