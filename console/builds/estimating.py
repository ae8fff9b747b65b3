"""Whether a build can be begun here and what it takes: the checkpoint's headers beside this PC's memory and disk."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec
import psutil

from agent.threads import finish_in_thread
from console.api.admin.build_types import BuildEstimate, BuildRequest
from console.builds.checkpoints import CheckpointFacts, look_at
from console.builds.estimate import Needs, needs_of
from console.builds.exporter import Exporter, Families
from shard_export.library.counts import counted
from shard_export.library.errors import LibraryExists
from shard_export.library.estimates import usable_cores
from shard_export.library.store import check_target, existing_parent, work_folder_of

JOURNAL = Path("journal") / "journal.jsonl"


async def estimate_build(
    request: BuildRequest, exporter: Exporter, obstacles: Callable[[BuildRequest], Sequence[str]], *, waits: bool
) -> BuildEstimate:
    """Estimate a build whose paths may be used. `obstacles` are what the console itself has against it.

    `waits`: another build goes on, so what is free when this one's turn comes is not known yet.
    Raises BuildRefused for a source that is no checkpoint.
    """
    facts = await asyncio.to_thread(look_at, Path(request.source))
    families = Families([], {}) if exporter.missing else await exporter.families()
    estimate = await finish_in_thread(lambda: _beside_this_pc(request, facts, waits=waits))
    problems = [exporter.missing, _family_problem(facts, families), *obstacles(request), *estimate.problems]
    return msgspec.structs.replace(
        estimate,
        problems=[problem for problem in problems if problem],
        notes=[*estimate.notes, *_notes(facts, families, estimate, request)],
    )


def kept_layers(out: Path) -> int:
    """Return how many layers an earlier build of this library finished."""
    try:
        lines = (work_folder_of(out) / JOURNAL).read_bytes().count(b"\n")
    except OSError:
        return 0
    # The first line says what is built, the second is the embedding.
    return max(0, lines - 2)


def _beside_this_pc(request: BuildRequest, facts: CheckpointFacts, *, waits: bool) -> BuildEstimate:
    out = Path(request.out)
    needs = needs_of(facts, request, usable_cores())
    kept = min(kept_layers(out), len(facts.layers))
    work = work_folder_of(out)
    kept_bytes = sum(path.stat().st_size for path in work.rglob("*.bin") if path.is_file()) if kept else 0
    free_bytes = shutil.disk_usage(existing_parent(out.parent)).free
    memory_free_bytes = psutil.virtual_memory().available
    lacking_bytes = needs.library_bytes - kept_bytes - free_bytes
    problems, notes = [_target_problem(out, replace=request.replace)], []
    if memory_free_bytes < needs.memory_bytes:
        needed = f"It needs about {needs.memory_bytes / 1e9:.1f} GB of memory and {memory_free_bytes / 1e9:.1f} GB are"
        if waits:
            notes.append(f"{needed} free beside the build that goes on now; it waits until that one has ended.")
        else:
            problems.append(
                f"{needed} free; close other programs on the console's PC, or build on a PC with more memory."
            )
    if lacking_bytes > 0:
        problems.append(
            f"The library needs about {(needs.library_bytes - kept_bytes) / 1e9:.1f} GB on the disk and "
            f"{free_bytes / 1e9:.1f} GB are free; free some space or choose a folder on another disk."
        )
    return BuildEstimate(
        model_id=facts.model_id,
        family=facts.family,
        layer_count=len(facts.layers),
        source_bytes=facts.size_bytes,
        library_bytes=needs.library_bytes,
        kept_layers=kept,
        kept_bytes=kept_bytes,
        disk_free_bytes=free_bytes,
        memory_bytes=needs.memory_bytes,
        memory_free_bytes=memory_free_bytes,
        evaluate_memory_bytes=needs.evaluate_memory_bytes,
        seconds=_left_s(needs, facts, kept),
        problems=[problem for problem in problems if problem],
        notes=notes,
    )


def _left_s(needs: Needs, facts: CheckpointFacts, kept: int) -> float:
    """Take the finished layers off."""
    finished = sum(facts.layers[:kept]) / max(1, facts.weights)
    return round(needs.seconds * (1 - finished), 1)


def _target_problem(out: Path, *, replace: bool) -> str:
    try:
        check_target(out, replace=True)
    except LibraryExists as error:
        return str(error)
    if not replace and out.is_dir() and any(out.iterdir()):
        return f"{out} already holds a library; choose another folder, or let this one be replaced."
    return ""


def _family_problem(facts: CheckpointFacts, families: Families) -> str:
    reason = families.refused.get(facts.family, "")
    return f"Models of the family {facts.family} cannot be built: {reason}" if reason else ""


def _notes(facts: CheckpointFacts, families: Families, estimate: BuildEstimate, request: BuildRequest) -> Iterable[str]:
    known = {family.name for family in families.exported}
    is_file = request.source.lower().endswith(".gguf")  # these have names of their own for families
    if known and facts.family and facts.family not in known and not is_file:
        yield (
            f"The family {facts.family} was not tried before; the build checks every layer, and nothing is published "
            "unless it computes what the original does."
        )
    if estimate.kept_layers:
        yield (
            f"An earlier build finished {estimate.kept_layers} of {counted(estimate.layer_count, 'layer')}; "
            "with the same options "
            "this one goes on from there."
        )
    if request.evaluate and estimate.evaluate_memory_bytes > estimate.memory_free_bytes:
        yield (
            f"Evaluating reads the whole model, about {estimate.evaluate_memory_bytes / 1e9:.1f} GB of memory; "
            f"{estimate.memory_free_bytes / 1e9:.1f} GB are free, so it will be left out."
        )
