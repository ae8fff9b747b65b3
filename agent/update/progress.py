"""How far an update is, and what to do next. Pure: no I/O; time is a number, Unix seconds.

    none → fetching → preparing → ready → wanted → trying → done
                                    ▲                │
                                    └── tried again ─┴──► failed

The running agent goes as far as `wanted`. From there to the end nobody but the program that is started next writes
it, which is the version that worked so far: it starts the new one, and makes it the current one if it proves itself.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from agent.update.releases import Release

Phase = Literal["none", "fetching", "preparing", "ready", "wanted", "trying", "done", "failed"]
MOST_TRIES = 3
AGAIN_S = 3600.0
"""After the first trial that failed; four times as long after each other one."""
FETCH_AGAIN_S = 600.0
SERVING_S = 6 * 3600.0
"""How long an update waits for a PC that serves; then the PC hands over first."""
KEPT_WORDS = 300


class Progress(msgspec.Struct, frozen=True):
    """Content of progress.json. `problem` is a sentence, `bad` the versions that are not tried any more, and why."""

    phase: Phase = "none"
    version: str = ""
    previous: str = ""
    """What ran before; it stays beside the new one."""
    sequence: int = 0
    sha256: str = ""
    size_bytes: int = 0
    unpacked_bytes: int = 0
    entries: int = 0
    expires_s: float = 0.0
    since_s: float = 0.0
    """When the phase began."""
    tries: int = 0
    again_s: float = 0.0
    problem: str = ""
    bad: dict[str, str] = {}

    @property
    def is_under_way(self) -> bool:
        """Whether something is to be done yet."""
        return self.phase in ("fetching", "preparing", "ready", "wanted", "trying")

    @property
    def is_launchers(self) -> bool:
        """Whether only the program that is started next may write it."""
        return self.phase in ("wanted", "trying")


class Now(msgspec.Struct, frozen=True):
    """What the next step depends on. `allowed`: by policy and installation; `unfelt`: nobody would notice."""

    now_s: float
    allowed: bool
    unfelt: bool
    serving: bool
    hurry: bool = False
    """Somebody at this PC asked for it now."""


Step = Literal["rest", "fetch", "prepare", "restart", "drop"]


def next_step(progress: Progress, now: Now) -> Step:
    """Say what the running agent does next for an update. Never raises."""
    if progress.phase not in ("fetching", "preparing", "ready"):
        return "rest"
    if progress.expires_s <= now.now_s:
        return "drop"
    if not now.allowed or (now.now_s < progress.again_s and not now.hurry):
        return "rest"
    if progress.phase == "fetching":
        return "fetch"
    if not (now.unfelt or now.hurry):
        return "rest"
    if progress.phase == "preparing":
        return "prepare"
    waits_for_streams = now.serving and now.now_s - progress.since_s < SERVING_S and not now.hurry
    return "rest" if waits_for_streams else "restart"


def taken(progress: Progress, release: Release, previous: str, now_s: float) -> Progress:
    """Begin with a release; one that is under way already goes on where it is."""
    if progress.is_under_way and progress.sha256 == release.sha256 and progress.version == release.version:
        return msgspec.structs.replace(progress, sequence=release.sequence, expires_s=release.expires_s)
    said = release.description
    return Progress(
        "fetching", said.version, previous, release.sequence, release.sha256, release.size_bytes,
        said.unpacked_bytes, said.entries, release.expires_s, now_s, bad=progress.bad,
    )  # fmt: skip


def moved(progress: Progress, phase: Phase, now_s: float) -> Progress:
    """Go on to a phase."""
    return msgspec.structs.replace(progress, phase=phase, since_s=now_s, again_s=0.0, problem="")


def postponed(progress: Progress, problem: str, now_s: float) -> Progress:
    """Keep the phase, and try again later: fetching was cut."""
    return msgspec.structs.replace(progress, again_s=now_s + FETCH_AGAIN_S, problem=problem[:KEPT_WORDS])


def dropped(progress: Progress, problem: str, now_s: float, *, bad: bool) -> Progress:
    """Give an update up; a version that is `bad` is not taken again."""
    problem = problem[:KEPT_WORDS]
    marked = {**progress.bad, progress.version: problem} if bad else progress.bad
    return msgspec.structs.replace(progress, phase="failed", since_s=now_s, problem=problem, bad=marked)


def begun(progress: Progress, now_s: float) -> Progress:
    """Count a trial before it begins."""
    return msgspec.structs.replace(moved(progress, "trying", now_s), tries=progress.tries + 1)


def called_off(progress: Progress, now_s: float) -> Progress:
    """Take a trial back that nobody could see the end of: the agent was told to stop."""
    return msgspec.structs.replace(moved(progress, "ready", now_s), tries=progress.tries - 1)


def failed(progress: Progress, problem: str, now_s: float) -> Progress:
    """Note a trial that failed: once more later, or never again."""
    if progress.tries >= MOST_TRIES:
        return dropped(progress, problem, now_s, bad=True)
    wait_s = AGAIN_S * 4 ** (progress.tries - 1)
    return msgspec.structs.replace(
        progress, phase="ready", since_s=now_s, again_s=now_s + wait_s, problem=problem[:KEPT_WORDS]
    )


def at_start(progress: Progress, current: str, *, is_here: bool, now_s: float) -> Progress:
    """Say how far an update is when a program starts; `trying` now means: try it.

    `current` is the version that proved itself last, `is_here` whether the new one lies beside it, whole.
    """
    if progress.version == current and progress.is_under_way:
        return moved(progress, "done", now_s)
    if progress.phase == "trying":
        return failed(progress, f"{progress.version} was cut off while it was tried.", now_s)
    if progress.phase == "wanted":
        if is_here:
            return begun(progress, now_s)
        return moved(progress, "fetching", now_s)
    if progress.phase == "ready" and not is_here:
        return moved(progress, "fetching", now_s)
    return progress
