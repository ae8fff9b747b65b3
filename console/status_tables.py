"""How the command line shows the state of the service: its pipelines, their stages, who waits and how guessing goes."""

from __future__ import annotations

from collections.abc import Iterator

from rich.table import Table

from console.api.admin import types as wire
from console.fleet.direct import StageLink
from console.pipeline.types import SpeculationStatus
from console.tables import table
from shard_export.library.counts import counted

QUEUE_SHOWN = 10
"""Waiting requests listed for each model; the number of all of them is in the line above."""


def status_tables(status: wire.Status) -> Iterator[Table | str]:
    """Yield the service's state, then every pipeline with its stages."""
    yield f"Fallow console {status.version}, API {status.api_url}, agents {', '.join(status.agents_urls)}"
    yield f"{status.agents_connected} of {counted(status.agents_known, 'PC')} connected"
    for view in status.pipelines:
        age = "" if view.probe.age_s is None else f", probed {view.probe.age_s:.0f} s ago"
        which = f" (pipeline {view.number + 1} of {view.request.replicas})" if view.request.replicas > 1 else ""
        yield f"{view.model}{which}: {view.state}{age}. {view.message}"
        rows = [
            (
                f"{stage.first}-{stage.last - 1}",
                stage.device_name,
                stage.engine,
                "yes" if stage.fused else "no",
                f"{stage.ms_per_token:.2f}",
                f"{stage.ms_per_step:.2f}",
                _reached(link),
            )
            for stage, link in zip(view.stages, view.links, strict=False)
        ]
        if rows:
            yield table(("layers", "PC", "engine", "fused", "ms/token", "ms/step", "reached"), rows)
        yield from (f"Layers {stage.first}-{stage.last - 1}: {stage.note}" for stage in view.stages if stage.note)
        yield (
            f"{view.tokens_per_second:.1f} tokens/s, {view.overhead_ms:.2f} ms overhead per step, "
            f"{view.running} running, {view.queued} queued, {view.kept} kept for their beginning"
        )
        if view.queue:
            shown = view.queue[:QUEUE_SHOWN]
            yield table(
                ("ahead", "key", "waits"), [(str(each.ahead), each.key_id, f"{each.waited_s:.0f} s") for each in shown]
            )
        if view.endings:
            yield "Answers by how they ended: " + ", ".join(f"{count} {name}" for name, count in view.endings.items())
        yield from (
            f"In reserve ({one.kind}): {one.device_name}, layers {one.first}-{one.last - 1}" for one in view.standbys
        )
        if view.pace:
            yield view.pace
        yield _drafts(view.speculation)


def _drafts(status: SpeculationStatus) -> str:
    """Say how guessing goes, in one line."""
    if status.reason:
        return f"Hardly any drafts ({status.source}): {status.reason}"
    return (
        f"Drafts ({status.source}): {status.drafts_per_round:.1f} a round, {status.acceptance:.0%} of them right, "
        f"{status.tokens_per_round:.2f} tokens a round"
    )


def _reached(link: StageLink) -> str:
    """Say how steps reach a stage, and why not directly."""
    if link.way == "direct":
        return f"directly ({link.round_trip_ms:.1f} ms probe)"
    return f"by {link.way}" + (f": {link.reason}" if link.reason else "")
