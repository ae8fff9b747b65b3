"""What is shown of a Status: icon, lines, and what can be done now or why not. Pure: no Qt, no clock, no socket."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from agent.control.status import DeviceShown, Phase, PolicyRow, ReasonShown, Status
from agent.tray.texts import Texts

StateIcon = Literal["idle", "contributing", "paused", "waiting", "attention", "offline"]
Ability = Literal["pause", "resume", "release", "contribute", "quit", "enrol", "stop", "leave", "chat", "start"]
ABILITIES: tuple[Ability, ...] = (
    "pause", "resume", "release", "contribute", "quit", "enrol", "stop", "leave", "chat", "start",
)  # fmt: skip

MAX_TOOLTIP_CHARS = 127
"""More is cut by Windows."""
CONSENT_FIELD = "enabled"
"""The policy row whose wish says that the owner has been asked."""

_ICONS: dict[str, StateIcon] = {
    "away": "idle", "contributing": "contributing", "paused": "paused", "waiting": "waiting",
    "attention": "attention", "offline": "offline",
}  # fmt: skip
_HOLDS_MEMORY: frozenset[Phase] = frozenset({"loading", "serving", "paused"})
_SCREEN_IS_TAKEN = frozenset({"fullscreen", "presentation"})
_NOT_MEMBER: frozenset[Phase] = frozenset({"unenrolled", "pending"})


@dataclass(frozen=True)
class Shown:
    """What the tray and the window show. `detail` and `reasons` may be empty.

    `why_not` says for every ability that is missing now why it is: a disabled button that does not explain itself
    helps nobody.
    """

    icon: StateIcon
    state: str
    headline: str
    detail: str = ""
    reasons: tuple[str, ...] = ()
    why_not: dict[Ability, str] = field(default_factory=dict)

    def can(self, ability: Ability) -> bool:
        """Whether something can be done now."""
        return ability not in self.why_not

    @property
    def tooltip(self) -> str:
        """Headline and detail, as long as every system shows it."""
        text = " ".join(part for part in ("Fallow:", self.headline, self.detail) if part)
        return text if len(text) <= MAX_TOOLTIP_CHARS else f"{text[: MAX_TOOLTIP_CHARS - 1].rstrip()}…"


def show(status: Status | None, now_s: float, texts: Texts, *, trouble: str = "", chat_here: bool = False) -> Shown:
    """Say what a status means; None: the service does not answer, `trouble` says why where that is known.

    `now_s` is Unix time. `chat_here`: a chat program is installed on this PC.
    """
    if status is None:
        silent = texts("why_not.no_service")
        why_not = {ability: silent for ability in ABILITIES if ability not in ("start", "chat")}
        if not chat_here:
            why_not["chat"] = texts("why_not.chat")
        return Shown("offline", texts("state.offline"), texts("headline.no_service"), trouble, (), why_not)
    icon = _ICONS[status.icon]
    return Shown(
        icon=icon,
        state=texts(f"state.{icon}"),
        headline=_headline(status, now_s, texts),
        detail=_detail(status, now_s, texts),
        reasons=tuple(_reason_line(reason, now_s, texts) for reason in status.reasons),
        why_not=_why_not(status, texts, chat_here=chat_here),
    )


def must_ask_consent(status: Status) -> bool:
    """Whether the owner has never said if this PC may work: the first run. An administrator cannot say it for them."""
    return any(
        row.field == CONSENT_FIELD and row.value is not False and row.asked.get("employee") is None
        for row in status.policy
    )


def screen_is_taken(status: Status) -> bool:
    """Whether a film or a talk has the screen: nothing may come up over it."""
    return any(reason.code in _SCREEN_IS_TAKEN for reason in status.reasons)


def why_not_switch(device: DeviceShown, texts: Texts, *, has_service: bool) -> str:
    """Say why a device's switch can do nothing now; empty: it can."""
    if not has_service:
        return texts("why_not.no_service")
    return texts("why_not.device_admin") if not device.on and device.set_by == "admin" else ""


def can_change(row: PolicyRow) -> bool:
    """Whether a wish of the owner can make a difference: what the company allows, they may still forbid."""
    return not row.locked or row.value is True


def ticks(status: Status | None) -> bool:
    """Whether what is shown changes with time alone."""
    return status is not None and (status.countdown is not None or bool(status.reasons))


def _headline(status: Status, now_s: float, texts: Texts) -> str:
    if status.phase == "pending" and status.device_code:
        return texts("headline.pending_code", code=status.device_code)
    until = status.pause_until_s
    if until is not None:
        if math.isinf(until):
            return texts("headline.paused_until_resume")
        return texts("headline.paused_until", moment=texts.moment(until, now_s))
    if status.phase in _NOT_MEMBER or not status.reasons:
        if status.phase == "loading" and status.stages:
            done = sum(stage.done for stage in status.stages) / len(status.stages)
            return texts("headline.loading_percent", percent=math.floor(100 * min(1.0, max(0.0, done))))
        return texts(f"headline.{status.phase}")
    return _said_reason(status.reasons[0], texts)


def _detail(status: Status, now_s: float, texts: Texts) -> str:
    coming = status.countdown
    if coming is not None and coming.at_s > now_s and math.isfinite(coming.at_s):
        # While somebody is here, the moment moves on with every key they press.
        watched = coming.what == "starts" and any(reason.code == "user_input" for reason in status.reasons)
        key = "countdown.if_away" if watched else f"countdown.{coming.what}"
        return texts(key, duration=texts.duration(coming.at_s - now_s))
    if status.pause_until_s is None and status.reasons and status.reasons[0].code == "user_input":
        idle_s = idle_start_s(status)
        if idle_s:
            return texts("countdown.after_you_leave", duration=texts.duration(idle_s))
    if status.link in ("refused", "stopped") and status.link_message:
        return status.link_message
    return ""


def idle_start_s(status: Status) -> float:
    """Return after how long without the owner the PC starts, 0 if the policy does not say."""
    for row in status.policy:
        if row.field in ("idle_start", "idle_start_s") and isinstance(row.value, int | float):
            return float(row.value)
    return 0.0


def _said_reason(reason: ReasonShown, texts: Texts) -> str:
    # The service's own sentence is English and may have a detail in it, such as a temperature.
    if reason.text and texts.language == "en":
        return reason.text
    return texts.named("reason", reason.code, reason.text)


def _reason_line(reason: ReasonShown, now_s: float, texts: Texts) -> str:
    text = _said_reason(reason, texts)
    for_s = now_s - reason.since_s
    if for_s < 60:
        return text
    return texts("now.since", reason=text.rstrip("."), duration=texts.duration(60 * math.floor(for_s / 60)))


def _why_not(status: Status, texts: Texts, *, chat_here: bool) -> dict[Ability, str]:
    member = status.phase not in _NOT_MEMBER
    rules: dict[Ability, tuple[bool, str]] = {
        "pause": (member, "why_not.not_member"),
        "resume": (status.pause_until_s is not None, "why_not.resume"),
        "release": (status.phase in _HOLDS_MEMORY or bool(status.stages), "why_not.release"),
        "contribute": (status.may_contribute_now, _why_not_contribute(status, member=member)),
        "quit": (status.may_quit, "why_not.quit"),
        "enrol": (not member, "why_not.enrol"),
        "stop": (status.phase == "pending", "why_not.stop"),
        "leave": (member, "why_not.not_member"),
        "chat": (chat_here or bool(status.chat_url), "why_not.chat"),
        "start": (False, "why_not.start"),
    }
    return {ability: texts(key) for ability, (allowed, key) in rules.items() if not allowed}


def _why_not_contribute(status: Status, *, member: bool) -> str:
    if not member:
        return "why_not.not_member"
    if status.pause_until_s is not None:
        return "why_not.contribute_paused"
    if status.phase in ("available", "loading", "serving"):
        return "why_not.contribute_does"
    return "why_not.contribute"
