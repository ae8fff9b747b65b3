"""What a build is after the exporter said something, or ended. Pure: time comes in as Unix seconds."""

from __future__ import annotations

from typing import Literal

import msgspec

from console.api.admin.build_types import Build, Gate
from shard_export.library.counts import counted
from shard_export.library.events import BuildEvent, BuildFailed, BuildPublished, BuildStarted, LayerDone

LEAST_STALL_S = 300.0
"""A head, or the first layer of a large model, may take minutes without a word."""
STALLED_LAYERS = 4.0
"""Nothing was heard for as long as so many layers take."""

Wish = Literal["", "pause", "cancel", "interrupt"]
"""Why a child was told to end; empty: it was not."""

_STATES: dict[Wish, Literal["paused", "cancelled", "interrupted"]] = {
    "pause": "paused",
    "cancel": "cancelled",
    "interrupt": "interrupted",
}


def begun(build: Build, now_s: float) -> Build:
    """The exporter was started. What an earlier attempt made counts no more."""
    return msgspec.structs.replace(
        build,
        state="running",
        phase="opening",
        message="",
        error="",
        layer_s=0.0,
        begun_s=now_s,
        news_s=now_s,
        ended_s=None,
        memory_bytes=0,
        digest="",
        size_bytes=0,
        gate=None,
        evaluation=None,
        evaluation_problem="",
    )


def heard(build: Build, event: BuildEvent, now_s: float) -> Build:
    """The exporter reported something."""
    build = msgspec.structs.replace(build, news_s=now_s)
    match event:
        case BuildStarted():
            notes = list(event.notes)
            if event.restarted_because:
                notes.insert(0, f"It started over: {event.restarted_because}.")
            return msgspec.structs.replace(
                build,
                phase="preparing",
                model_id=event.model_id,
                family=event.family,
                layer=event.finished_layers,
                kept_layers=event.finished_layers,
                layer_count=event.layer_count,
                estimated_bytes=event.estimated_bytes,
                estimated_memory_bytes=event.estimated_memory_bytes,
                estimated_s=event.estimated_seconds,
                notes=notes,
            )
        case LayerDone():
            done = event.index + 1
            fresh = max(1, done - build.kept_layers)
            return msgspec.structs.replace(
                build,
                phase="finishing" if done >= event.layer_count else "layers",
                layer=done,
                layer_count=event.layer_count,
                layer_s=(build.layer_s * (fresh - 1) + event.seconds) / fresh,
            )
        case BuildPublished():
            return msgspec.structs.replace(
                build,
                digest=event.library_digest,
                size_bytes=event.size_bytes,
                gate=Gate(event.top1_agreement, event.mean_kl),
            )
        case BuildFailed():
            return msgspec.structs.replace(build, error=event.error, message=event.message)
        case _:
            return build


def ended(build: Build, exit_code: int, wish: Wish, last_words: str, now_s: float) -> Build:
    """The exporter's process ended; `last_words` is the last line of its standard error."""
    spent_s = build.spent_s + now_s - (now_s if build.begun_s is None else build.begun_s)
    build = msgspec.structs.replace(build, ended_s=now_s, spent_s=spent_s, memory_bytes=0, process_id=0)
    if exit_code == 0 and build.digest:
        return msgspec.structs.replace(build, message="", error="")
    if wish:
        return msgspec.structs.replace(build, state=_STATES[wish], message=stopped_note(build, wish), error="")
    message = build.message or _cause(exit_code, last_words)
    return msgspec.structs.replace(build, state="failed", message=message)


def found_again(build: Build, now_s: float) -> Build:
    """The service was started again, and this build worked when it ended."""
    build = msgspec.structs.replace(
        build, ended_s=now_s if build.news_s is None else build.news_s, process_id=0, memory_bytes=0
    )
    if build.digest:
        problem = "The console's service ended meanwhile." if build.phase == "evaluating" else ""
        is_due = build.request.publish and not build.published
        message = "The service ended before it was published; publish it now." if is_due else ""
        return msgspec.structs.replace(build, state="built", phase="done", message=message, evaluation_problem=problem)
    return msgspec.structs.replace(build, state="interrupted", message=stopped_note(build, "interrupt"), error="")


def stopped_note(build: Build, wish: Wish) -> str:
    """Say why a build does not go on, and what of it is kept."""
    kept = kept_note(build)
    match wish:
        case "pause":
            return f"It was paused: {kept}"
        case "interrupt":
            return f"The console's service ended while it was built: {kept}"
        case _:
            return cancelled_note(build, discarded=False)


def cancelled_note(build: Build, *, discarded: bool) -> str:
    """Say what of a cancelled build is on the disk."""
    if discarded or build.layer == 0:
        return "It was cancelled: nothing of it is kept."
    return (
        f"It was cancelled: {build.layer} of {counted(build.layer_count, 'layer is', 'layers are')} kept, "
        "and a build of the same model into "
        "the same folder with the same options goes on from there."
    )


def kept_note(build: Build) -> str:
    """Say what of a build is on the disk, to follow a colon."""
    if build.layer == 0:
        return "no layer was finished yet, so it begins again when it is resumed."
    many = counted(build.layer, "finished layer is", "finished layers are")
    return f"{many} kept, and resuming goes on from there."


def viewed(build: Build, now_s: float) -> Build:
    """Add what depends on the time: how long it will still take, and whether it stalls."""
    if build.state not in {"running", "stopping"}:
        return build
    quiet_s = 0.0 if build.news_s is None else now_s - build.news_s
    patience_s = max(LEAST_STALL_S, STALLED_LAYERS * build.layer_s)
    return msgspec.structs.replace(
        build,
        left_s=_left_s(build, quiet_s),
        # Reading a whole model to evaluate it says nothing until it is done.
        stalled=quiet_s > patience_s and build.phase != "evaluating",
    )


def _left_s(build: Build, quiet_s: float) -> float | None:
    if build.phase == "evaluating" or build.layer_count == 0:
        return None
    if build.layer_s:
        # The head and the check at the end take about as long as two layers.
        return max(0.0, build.layer_s * (build.layer_count - build.layer + 2) - quiet_s)
    share = (build.layer_count - build.kept_layers + 2) / (build.layer_count + 2)
    return max(0.0, build.estimated_s * share - quiet_s)


def _cause(exit_code: int, last_words: str) -> str:
    if exit_code in {-9, 137}:
        return (
            "The system ended the exporter, most likely because the memory ran out; close other programs on the "
            "console's PC and resume."
        )
    words = f" Its last words: {last_words}" if last_words else ""
    return f"The exporter ended unexpectedly (exit code {exit_code}); see its log, then resume.{words}"
