"""What this PC may do for others, and who said so: built-in bounds, the administrator, the employee. Pure.

Each party may say something of a row, or nothing. What they say is combined so that the tightest wins, whatever the
order it came in; the built-in bound is always part of it. Only where nobody says anything does the built-in value
hold, so an administrator can shorten a wait down to its bound, and the employee can only make it longer again.

`unattended` is the one row an administrator cannot switch on: only at the PC itself can somebody say that nobody
works there.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec

from agent.volunteer.schedule import ALWAYS, Hours, intersect

SetBy = Literal["built-in", "admin", "employee"]
MAX_PROGRAMS = 1000
MAX_PROGRAM_LETTERS = 128
DAY_S = 86_400.0
GIB = 1024**3


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """What holds: every row has a value. The defaults are the built-in values, for when nobody says anything."""

    enabled: bool = True
    consent_needed: bool = False
    """Whether this PC waits until its owner has said something of `enabled`."""
    paused: bool = False
    drain: bool = False
    """Finish what runs by handing it over, then stay away."""
    devices: frozenset[str] = frozenset({"CPU", "GPU", "NPU"})
    """Kinds of devices; "GPU" stands for every GPU."""
    devices_off: frozenset[str] = frozenset()
    """Single devices that are not used, such as "GPU.1"."""
    memory_max_bytes: int = 2**48
    memory_max_percent: float = 90.0
    """Of main memory, for all stages."""
    memory_floor_bytes: int = 4 * GIB
    memory_floor_percent: float = 25.0
    """What has to stay free for the owner: the larger of the two."""
    idle_start_s: float = 300.0
    idle_locked_s: float = 30.0
    """Instead of `idle_start_s` while the PC is locked or its displays are off."""
    idle_resume_s: float = 120.0
    """After a pause in which the memory was kept."""
    settle_s: float = 10.0
    release_after_s: float = 5.0
    startup_delay_s: float = 120.0
    cpu_busy_percent: float = 50.0
    gpu_busy_percent: float = 15.0
    on_battery_above_percent: float = 100.0
    """100: never on battery."""
    heat_limit_celsius: float = 90.0
    disk_reserve_bytes: int = 2 * GIB
    fullscreen: bool = False
    """The switches of this kind say: work may go on while this is so."""
    remote_session: bool = False
    inhibited: bool = False
    metered: bool = False
    power_saver: bool = False
    schedule: Hours = ALWAYS
    exclusive_programs: frozenset[str] = frozenset()
    contribute_now: bool = True
    quit_allowed: bool = True
    learn_availability: bool = True
    share_availability: bool = False
    unattended: bool = False
    self_update: bool = True
    """Whether the agent may replace itself by a newer version that the console offers."""


class Wishes(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one party says of each row of `Policy`; None: nothing. Unknown rows are ignored."""

    enabled: bool | None = None
    consent_needed: bool | None = None
    paused: bool | None = None
    drain: bool | None = None
    devices: frozenset[str] | None = None
    devices_off: frozenset[str] | None = None
    memory_max_bytes: int | None = None
    memory_max_percent: float | None = None
    memory_floor_bytes: int | None = None
    memory_floor_percent: float | None = None
    idle_start_s: float | None = None
    idle_locked_s: float | None = None
    idle_resume_s: float | None = None
    settle_s: float | None = None
    release_after_s: float | None = None
    startup_delay_s: float | None = None
    cpu_busy_percent: float | None = None
    gpu_busy_percent: float | None = None
    on_battery_above_percent: float | None = None
    heat_limit_celsius: float | None = None
    disk_reserve_bytes: int | None = None
    fullscreen: bool | None = None
    remote_session: bool | None = None
    inhibited: bool | None = None
    metered: bool | None = None
    power_saver: bool | None = None
    schedule: Hours | None = None
    exclusive_programs: frozenset[str] | None = None
    contribute_now: bool | None = None
    quit_allowed: bool | None = None
    learn_availability: bool | None = None
    share_availability: bool | None = None
    unattended: bool | None = None
    self_update: bool | None = None


class Tightest(enum.Enum):
    """How two values of a row are combined."""

    BOTH = "both"
    """A permission: only if everybody who says something allows it."""
    EITHER = "either"
    """A restraint: as soon as somebody wants it."""
    SMALLEST = "smallest"
    LARGEST = "largest"
    COMMON = "common"
    """What every list or schedule holds."""
    JOINED = "joined"
    """What any list holds."""


Kind = Literal["switch", "number", "seconds", "bytes", "percent", "names", "schedule"]


class Row(msgspec.Struct, frozen=True):
    """One row: how it combines and what may be asked for. Asking for less than `bound` counts as asking for it.

    `low` and `high` are the values a document may hold at all; beyond them it is refused.
    """

    tightest: Tightest
    kind: Kind
    low: float = 0.0
    high: float = 0.0
    bound: float | None = None


_PERMISSION = Row(Tightest.BOTH, "switch")
_RESTRAINT = Row(Tightest.EITHER, "switch")

ROWS: Mapping[str, Row] = {
    "enabled": _PERMISSION,
    "consent_needed": _RESTRAINT,
    "paused": _RESTRAINT,
    "drain": _RESTRAINT,
    "devices": Row(Tightest.COMMON, "names"),
    "devices_off": Row(Tightest.JOINED, "names"),
    "memory_max_bytes": Row(Tightest.SMALLEST, "bytes", 0, 2**48),
    "memory_max_percent": Row(Tightest.SMALLEST, "percent", 0, 100, bound=90),
    "memory_floor_bytes": Row(Tightest.LARGEST, "bytes", 0, 2**48, bound=4 * GIB),
    "memory_floor_percent": Row(Tightest.LARGEST, "percent", 0, 100, bound=25),
    "idle_start_s": Row(Tightest.LARGEST, "seconds", 0, DAY_S, bound=60),
    "idle_locked_s": Row(Tightest.LARGEST, "seconds", 0, DAY_S, bound=10),
    "idle_resume_s": Row(Tightest.LARGEST, "seconds", 0, DAY_S, bound=60),
    "settle_s": Row(Tightest.LARGEST, "seconds", 0, 3600, bound=5),
    "release_after_s": Row(Tightest.SMALLEST, "seconds", 0, 3600, bound=60),
    "startup_delay_s": Row(Tightest.LARGEST, "seconds", 0, 3600, bound=10),
    "cpu_busy_percent": Row(Tightest.SMALLEST, "percent", 1, 100, bound=80),
    "gpu_busy_percent": Row(Tightest.SMALLEST, "percent", 1, 100, bound=50),
    "on_battery_above_percent": Row(Tightest.LARGEST, "percent", 0, 100, bound=50),
    "heat_limit_celsius": Row(Tightest.SMALLEST, "number", 30, 120, bound=95),
    "disk_reserve_bytes": Row(Tightest.LARGEST, "bytes", 0, 2**48, bound=GIB),
    "fullscreen": _PERMISSION,
    "remote_session": _PERMISSION,
    "inhibited": _PERMISSION,
    "metered": _PERMISSION,
    "power_saver": _PERMISSION,
    "schedule": Row(Tightest.COMMON, "schedule"),
    "exclusive_programs": Row(Tightest.JOINED, "names"),
    "contribute_now": _PERMISSION,
    "quit_allowed": _PERMISSION,
    "learn_availability": _PERMISSION,
    "share_availability": _PERMISSION,
    "unattended": _PERMISSION,
    "self_update": _PERMISSION,
}
"""Every row of `Policy`, in the order people are shown them."""


class Asked(msgspec.Struct, frozen=True):
    """What each party said of one row; None: nothing."""

    admin: Any
    employee: Any


class Merged(msgspec.Struct, frozen=True):
    """A policy with its origin: who set each row, and what each party had asked for."""

    policy: Policy
    set_by: dict[str, SetBy]
    asked: dict[str, Asked]


BUILT_IN = Policy()


def merge(admin: Wishes, employee: Wishes, *, admin_expired: bool = False) -> Merged:
    """Combine the three parties. Never raises.

    An administrator's policy that expired still restrains, but loosens nothing any more: the built-in values join in.
    """
    values: dict[str, Any] = {}
    set_by: dict[str, SetBy] = {}
    asked: dict[str, Asked] = {}
    for name, row in ROWS.items():
        said = Asked(getattr(admin, name), getattr(employee, name))
        if name == "unattended" and said.employee is None:
            said = Asked(None if said.admin else said.admin, None)
        asked[name] = said
        values[name], set_by[name] = _decide(row, getattr(BUILT_IN, name), said, admin_expired=admin_expired)
    return Merged(Policy(**values), set_by, asked)


def _decide(row: Row, built_in: Any, said: Asked, *, admin_expired: bool) -> tuple[Any, SetBy]:
    """Return the row's value and the party that made it so tight; the administrator, where both asked for the same."""
    asked: list[tuple[Any, SetBy]] = [(said.admin, "admin"), (said.employee, "employee")]
    parties = [(value, party) for value, party in asked if value is not None]
    if row.bound is not None and parties:
        parties.append((type(built_in)(row.bound), "built-in"))
    if not parties or (admin_expired and said.employee is None):
        parties.append((built_in, "built-in"))
    combine = _COMBINE[row.tightest]
    value = parties[0][0]
    for other, _ in parties[1:]:
        value = combine(value, other)
    # A list joined or cut from several is nobody's own: the last party that changed it is the one to ask.
    party = next((party for own, party in parties if own == value), parties[-1][1])
    return value, party


def combine_wishes(one: Wishes, other: Wishes) -> Wishes:
    """Combine what one party says in two places (all PCs, those with a tag): the tightest of each row."""
    values: dict[str, Any] = {}
    for name, row in ROWS.items():
        first, second = getattr(one, name), getattr(other, name)
        values[name] = first if second is None else second if first is None else _COMBINE[row.tightest](first, second)
    return Wishes(**values)


def _common(one: Any, other: Any) -> Any:
    return one & other if isinstance(one, frozenset) else intersect(one, other)


_COMBINE: dict[Tightest, Callable[[Any, Any], Any]] = {
    Tightest.BOTH: lambda one, other: one and other,
    Tightest.EITHER: lambda one, other: one or other,
    Tightest.SMALLEST: min,
    Tightest.LARGEST: max,
    Tightest.COMMON: _common,
    Tightest.JOINED: lambda one, other: one | other,
}


def memory_floor_bytes(policy: Policy, total_bytes: int) -> int:
    """Return what has to stay free for the owner on a PC with `total_bytes` of main memory."""
    return max(policy.memory_floor_bytes, int(total_bytes * policy.memory_floor_percent / 100))


def memory_cap_bytes(policy: Policy, total_bytes: int) -> int:
    """Return what the policy lets all stages take together."""
    return min(policy.memory_max_bytes, int(total_bytes * policy.memory_max_percent / 100))


def allows_device(policy: Policy, name: str) -> bool:
    """Say whether a device such as "GPU.0" may be used."""
    kind = name.partition(".")[0]
    return kind in policy.devices and not {name, kind} & policy.devices_off
