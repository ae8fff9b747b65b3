"""What is counted of models and their pipelines, read from where it is kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import get_args

from console.api.admin.types import DeploymentState
from console.deployments.entry import Entry
from console.deployments.live import LivePipeline
from console.deployments.totals import ModelTotals
from console.fleet.hub import Hub
from console.metrics.scrape import Scrape
from console.pipeline.coordinator import Coordinator

ENDINGS = ("stop", "length", "cancelled", "stage_lost", "stage_failed")
"""How answers may end, told before one did; whatever else happens is told once it did."""


def collect_models(models: Mapping[str, ModelTotals], scrape: Scrape) -> None:
    """Add what became of each model's answers and plans."""
    for model, totals in models.items():
        for outcome in sorted({*totals.answers, *ENDINGS}):
            scrape.add("fallow_answers", totals.answers[outcome], model, outcome)
        tokens = {"prompt": totals.prompt_tokens, "cached": totals.cached_tokens, "answer": totals.answer_tokens}
        for kind, count in tokens.items():
            scrape.add("fallow_tokens", count, model, kind)
        scrape.add("fallow_first_token_seconds", totals.first_token, model)
        scrape.add("fallow_between_tokens_seconds", totals.between_tokens, model)
        for why in ("deployed", "taken_over"):
            scrape.add("fallow_plan_changes", totals.plans[why], model, why)
        scrape.add("fallow_recoveries", totals.recovered.count, model, "recovered")
        scrape.add("fallow_recoveries", totals.given_up, model, "given_up")
        scrape.add("fallow_recovery_seconds", totals.recovered, model)


def collect_pipelines(entries: Sequence[Entry], hub: Hub, scrape: Scrape) -> None:
    """Add how each pipeline is, and what went through it since it came up."""
    for entry in entries:
        names = (entry.model, str(entry.number + 1))
        for state in get_args(DeploymentState):
            scrape.add("fallow_pipeline_state", entry.state == state, *names, state)
        scrape.add("fallow_stream_places", entry.request.streams, *names)
        if entry.live is not None:
            _collect_streams(entry.live.coordinator, names, scrape)
            _collect_steps(entry.live.coordinator, names, scrape)
            _collect_stages(entry.live, hub, names, scrape)


def _collect_streams(coordinator: Coordinator, names: tuple[str, str], scrape: Scrape) -> None:
    status = coordinator.status()
    if status.last_token_age_s >= 0:
        scrape.add("fallow_last_token_age_seconds", status.last_token_age_s, *names)
    scrape.add("fallow_streams", status.streams_running, *names, "running")
    scrape.add("fallow_streams", status.streams_waiting, *names, "waiting")
    scrape.add("fallow_queue_oldest_seconds", max((one.waited_s for one in status.queue), default=0.0), *names)
    scrape.add("fallow_steps_in_flight", status.steps_in_flight, *names)
    scrape.add("fallow_dropped_replies", status.dropped_replies, *names)
    for state, count in coordinator.blocks._asdict().items():
        scrape.add("fallow_kv_blocks", count, *names, state)


def _collect_steps(coordinator: Coordinator, names: tuple[str, str], scrape: Scrape) -> None:
    totals = coordinator.totals
    scrape.add("fallow_queue_wait_seconds", totals.waited, *names)
    scrape.add("fallow_drafted_tokens", totals.drafted, *names)
    scrape.add("fallow_accepted_tokens", totals.accepted, *names)
    for work, rows in totals.rows.items():
        scrape.add("fallow_step_rows", rows, *names, work)


def _collect_stages(live: LivePipeline, hub: Hub, names: tuple[str, str], scrape: Scrape) -> None:
    carried = hub.stage_bytes(live.pipeline)
    known = live.coordinator.totals.stages
    for index, device_id in enumerate(live.device_ids):
        labels = (*names, str(index), device_id)
        round_trip_s = hub.round_trip_s(device_id)
        if round_trip_s is not None:
            scrape.add("fallow_stage_link_round_trip_seconds", round_trip_s, *labels)
        # While others take over, route and stages change one after the other.
        if index < len(carried.sent):
            scrape.add("fallow_stage_link_bytes", carried.sent[index], *labels, "to_stage")
            scrape.add("fallow_stage_link_bytes", carried.received[index], *labels, "from_stage")
        if (stage := known.get(device_id)) is not None:
            for work, tally in stage.compute.items():
                scrape.add("fallow_stage_compute_seconds", tally, *labels, work)
            for work, tally in stage.queue.items():
                scrape.add("fallow_stage_queue_seconds", tally, *labels, work)
            for work, tally in stage.link.items():
                scrape.add("fallow_stage_link_seconds", tally, *labels, work)
