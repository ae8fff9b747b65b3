"""console.metrics over a played fleet: what is exposed is what happened."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families as parse

from console.api.app import RequestCounts
from console.deployments.deployments import Deployments
from console.metrics.collecting import ConsoleMetrics
from console.metrics.scrape import exposed
from console.pipeline.types import GenerationRequest
from console.registry.registry import Registry
from tests.support.deployments import ask, deploying
from tests.support.fleet import Fleet
from tests.support.patience import until
from tests.support.served import PCs, asked_and_stuck, give_back, playing_all, served_by, state_of

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


class Watched:
    """A played fleet with what counts it."""

    def __init__(self, fleet: Fleet, deployments: Deployments, pcs: PCs) -> None:
        self.deployments, self.pcs, self.requests = deployments, pcs, RequestCounts()
        self.metrics = ConsoleMetrics(
            version="1", deployments=deployments, hub=fleet.hub, requests=self.requests, elsewhere=lambda: 0
        )
        fleet.hub.subscribe(self.metrics.fleet.on_fleet_event)
        self._seen: Samples = {}

    def look(self) -> None:
        text = exposed(self.metrics.scrape({"active": len(self.pcs), "pending": 2}), "").body.decode()
        samples = [sample for family in parse(text) for sample in family.samples]
        self._seen = {(one.name, frozenset(one.labels.items())): one.value for one in samples}
        assert len(self._seen) == len(samples), "two samples have the same labels"

    def of(self, name: str, **labels: str) -> float:
        """Add up the samples of a metric that have these labels."""
        wanted = set(labels.items())
        found = [value for (one, has), value in self._seen.items() if one == name and wanted <= has]
        assert found, (name, labels)
        return sum(found)


@pytest.fixture
async def watched(fleet: Fleet, registry: Registry, library: Path) -> AsyncIterator[Watched]:
    async with deploying(fleet, registry) as deployments, playing_all(fleet, "ann", "bob", "cy") as pcs:
        yield Watched(fleet, deployments, pcs)


async def test_a_console_without_models_exposes_its_fleet(watched: Watched) -> None:
    watched.look()
    assert watched.of("fallow_agents", state="available") == 3
    assert watched.of("fallow_agents", state="pending") == 2
    assert watched.of("fallow_agents") == 5
    assert watched.of("fallow_build_info", version="1") == 1
    assert watched.of("process_resident_memory_bytes") > 1 << 20


async def test_what_answers_cost_is_told_by_model_pipeline_and_stage(watched: Watched) -> None:
    served = await served_by(watched.deployments, watched.pcs)
    await ask(watched.deployments)
    watched.requests.done["/v1/chat/completions", "POST", "200"] += 1
    watched.look()
    of = watched.of
    model = {"model": "small"}
    assert of("fallow_http_requests_total", endpoint="/v1/chat/completions", outcome="200") == 1
    assert of("fallow_answers_total", **model) == of("fallow_answers_total", outcome="stop", **model) == 1
    assert of("fallow_first_token_seconds_count", **model) == 1
    tokens = of("fallow_tokens_total", kind="answer", **model)
    assert tokens == len("Paris.") + 1
    assert of("fallow_between_tokens_seconds_count", **model) == len("Paris.") - 1
    assert of("fallow_queue_wait_seconds_count", pipeline="1", **model) == 1
    assert (of("fallow_pipeline_state", **model), of("fallow_pipeline_state", state="ready")) == (1, 1)
    assert (of("fallow_streams", state="running"), of("fallow_stream_places")) == (0, 2)
    for stage, pc in enumerate((served.head, served.tail)):
        labels = {"stage": str(stage), "device": pc.agent.device_id, **model}
        steps = of("fallow_stage_compute_seconds_count", work="answers", **labels)
        # The first token came with the prompt, the last step said the end.
        assert steps == tokens - 1
        # A played stage says a millisecond, which is cut where the whole trip was shorter.
        assert 0 < of("fallow_stage_compute_seconds_sum", work="answers", **labels) < steps / 999
        assert of("fallow_stage_link_seconds_count", work="answers", **labels) == steps
        for direction in ("to_stage", "from_stage"):
            assert of("fallow_stage_link_bytes_total", direction=direction, **labels) > 100
    assert of("fallow_step_rows_sum", work="answers") == of("fallow_step_rows_count", work="answers") == tokens - 1
    assert of("fallow_kv_blocks", **model) == 4096 // 32
    assert of("fallow_plan_changes_total", kind="deployed") == 1
    assert (of("fallow_agents", state="serving"), of("fallow_agents", state="available")) == (2, 1)


async def test_a_pc_that_goes_back_to_its_owner_is_a_yield_a_recovery_and_another_plan(
    watched: Watched, fleet: Fleet
) -> None:
    served = await served_by(watched.deployments, watched.pcs)
    asking = await asked_and_stuck(watched.deployments, served.tail, after=2)
    await give_back(fleet, served.tail)
    await asking
    await until(lambda: state_of(watched.deployments) == "ready")
    watched.look()
    of = watched.of
    assert of("fallow_agent_yields_total") == of("fallow_agent_yields_total", reason="user_input") == 1
    assert of("fallow_agents_held", reason="user_input") == of("fallow_agents", state="held") == 1
    assert of("fallow_recoveries_total", outcome="recovered") == of("fallow_recovery_seconds_count") == 1
    assert of("fallow_recoveries_total", outcome="given_up") == 0
    assert of("fallow_plan_changes_total", kind="taken_over") == 1
    serving = {"model": "small", "stage": "1", "device": served.spares[0].agent.device_id}
    assert of("fallow_stage_compute_seconds_count", **serving) > 0
    with pytest.raises(AssertionError):
        of("fallow_stage_compute_seconds_count", device=served.tail.agent.device_id)


async def test_an_answer_that_nobody_waits_for_counts_as_cancelled(watched: Watched) -> None:
    await served_by(watched.deployments, watched.pcs)
    generator = watched.deployments.generator("small")
    answer = generator.generate(GenerationRequest(generator.encode_text("Hello"), 20))
    await anext(answer)
    await answer.aclose()  # type: ignore[attr-defined]  # an async generator
    watched.look()
    assert watched.of("fallow_answers_total") == watched.of("fallow_answers_total", outcome="cancelled") == 1


async def test_two_consoles_in_one_process_do_not_mix(watched: Watched, fleet: Fleet) -> None:
    other = Watched(fleet, watched.deployments, watched.pcs)
    other.requests.done["/healthz", "GET", "200"] += 1
    await asyncio.sleep(0)
    watched.look()
    with pytest.raises(AssertionError):
        watched.of("fallow_http_requests_total", endpoint="/healthz")
