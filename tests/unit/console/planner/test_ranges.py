from __future__ import annotations

import random
from itertools import pairwise, permutations
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from console.planner.costs import Costs
from console.planner.ranges import plan
from console.planner.search import latency_ms
from console.planner.types import AgentFacts, ModelFacts, Plan, PlanImpossible
from shard_export.library.manifest import MANIFEST_NAME, Manifest
from tests.support.plan_oracles import Best, by_brute_force, by_integer_program, cycle_ms
from tests.support.plans import MB, SCRATCH, make_fleet, make_model, make_plan

SLOW = pytest.mark.slow


def borders(found: Plan) -> list[tuple[str, int, int]]:
    return [(stage.name, stage.first, stage.last) for stage in found.stages]


def test_one_pc_that_holds_the_model_is_not_split() -> None:
    found = make_plan(make_model(), make_fleet([1000, 1000]))
    assert borders(found) == [("pc-0", 0, 12)]
    assert "alone" in found.reasons[0]


def test_forced_stages_are_split_where_both_are_equally_slow() -> None:
    found = make_plan(make_model(layers=12, head_mb=44), make_fleet([1000, 1000]), stages=2)
    assert borders(found) == [("pc-0", 0, 7), ("pc-1", 7, 12)]
    assert found.stages[0].ms == pytest.approx(found.stages[1].ms, rel=0.01)
    assert found.full_tokens_per_second == pytest.approx(2 * found.tokens_per_second, rel=0.01)
    assert "asked for" in found.reasons[0]


def test_a_pc_twice_as_fast_gets_twice_the_work() -> None:
    found = make_plan(make_model(layers=12, head_mb=0), make_fleet([1000, 1000], [0.1, 0.2]), stages=2)
    assert borders(found)[0] == ("pc-0", 0, 8)


def test_the_fewest_pcs_that_hold_the_model_are_taken() -> None:
    found = make_plan(make_model(), make_fleet([300, 300, 350, 100]))
    assert len(found.stages) == 2
    assert "fewest" in found.reasons[0]
    assert any("pc-3" in reason for reason in found.reasons)


def test_a_fast_small_pc_beside_a_slow_large_one_is_worth_a_split() -> None:
    found = make_plan(make_model(), make_fleet([1000, 300], [2.0, 0.1]))
    assert len(found.stages) == 2
    assert "as fast" in found.reasons[0]


def test_the_cache_of_the_promised_streams_counts() -> None:
    fleet = make_fleet([500, 500])
    assert len(make_plan(make_model(), fleet, streams=2).stages) == 1
    assert len(make_plan(make_model(), fleet, streams=20).stages) == 2


def test_a_pc_that_was_not_measured_counts_as_the_median_and_is_named() -> None:
    found = make_plan(make_model(), make_fleet([300, 300], [0.2, None]))
    assert any("0.200 ms per MB: pc-1" in reason for reason in found.reasons)


def test_the_order_of_the_pcs_changes_nothing() -> None:
    fleet = make_fleet([200, 240, 300, 180, 260], [0.3, 0.1, None, 0.2, 0.15])
    expected = make_plan(make_model(), fleet)
    for order in list(permutations(fleet))[::17]:
        assert make_plan(make_model(), list(order)) == expected


def test_too_little_memory_says_how_much_is_missing() -> None:
    with pytest.raises(PlanImpossible, match="124 MB are missing") as caught:
        make_plan(make_model(), make_fleet([200, 200]))
    assert caught.value.missing_bytes == 124 * MB


def test_memory_that_is_enough_only_in_sum_says_what_each_pc_lacks() -> None:
    with pytest.raises(PlanImpossible, match="more on each") as caught:
        make_plan(make_model(layers=2, layer_mb=100), make_fleet([150, 150, 400 - 130]))
    assert 0 < caught.value.missing_bytes <= 100 * MB


def test_no_pc_at_all_says_so() -> None:
    with pytest.raises(PlanImpossible, match="1 PC is needed") as caught:
        make_plan(make_model(), [])
    assert caught.value.missing_agents == 1


def test_fewer_pcs_than_forced_stages_says_how_many_are_missing() -> None:
    with pytest.raises(PlanImpossible) as caught:
        make_plan(make_model(), make_fleet([900]), stages=3)
    assert caught.value.missing_agents == 2


@pytest.mark.parametrize("stages", [0, 13])
def test_more_stages_than_layers_are_refused(stages: int) -> None:
    with pytest.raises(PlanImpossible, match="12 layers"):
        make_plan(make_model(), make_fleet([900] * 20), stages=stages)


def test_a_large_fleet_is_planned_within_its_memory() -> None:
    chance = random.Random(4)
    fleet = make_fleet(
        [chance.randrange(2000, 9000) for _ in range(300)], [chance.uniform(0.02, 0.1) for _ in range(300)]
    )
    model = make_model(layers=100, layer_mb=300, embed_mb=500, head_mb=500)
    check_valid(make_plan(model, fleet), model, fleet, streams=2)


def test_the_real_model_splits_near_two_thirds(smollm2_library: Path) -> None:
    manifest = msgspec.json.decode((smollm2_library / MANIFEST_NAME).read_bytes(), type=Manifest)
    model = ModelFacts.from_manifest(manifest, "exact")
    assert (model.layers, model.kv_token_bytes[0]) == (30, 3 * 128 * 4)
    found = plan(model, make_fleet([2000, 2000]), context_tokens=1024, streams=8, stages=2)
    assert 17 <= found.stages[0].last <= 22


def check_valid(found: Plan, model: ModelFacts, fleet: list[AgentFacts], *, streams: int) -> None:
    edges = [0, *(stage.last for stage in found.stages)]
    assert [(stage.first, stage.last) for stage in found.stages] == list(pairwise(edges))
    assert edges[-1] == model.layers
    assert len({stage.device_id for stage in found.stages}) == len(found.stages)
    budgets = {agent.device_id: agent.memory_budget_bytes for agent in fleet}
    for stage in found.stages:
        need = sum(model.layer_bytes[stage.first : stage.last]) + SCRATCH
        need += sum(model.kv_token_bytes[stage.first : stage.last]) * 1000 * streams
        need += model.embed_bytes if stage.first == 0 else 0
        need += model.head_bytes if stage.last == model.layers else 0
        assert need == stage.memory_bytes <= budgets[stage.device_id]


FLEETS = st.lists(st.tuples(st.integers(110, 420), st.one_of(st.none(), st.floats(0.02, 1.0))), min_size=1, max_size=4)


@settings(max_examples=40, deadline=None)
@given(FLEETS, st.lists(st.integers(1, 60), min_size=1, max_size=7), st.integers(0, 80), st.integers(0, 80))
def test_small_fleets_get_the_best_plan_there_is(
    facts: list[tuple[int, float | None]], layer_mb: list[int], embed_mb: int, head_mb: int
) -> None:
    fleet = make_fleet([memory for memory, _ in facts], [speed for _, speed in facts])
    sizes = [size * MB for size in layer_mb]
    model = ModelFacts("toy", sizes, [500] * len(sizes), embed_mb * MB, 1000, head_mb * MB)
    costs = Costs(model, fleet, context_tokens=1000, streams=2, scratch_bytes=SCRATCH)
    bests = [by_brute_force(costs, fleet, count) for count in range(1, min(len(fleet), len(sizes)) + 1)]
    for count, best in enumerate(bests, 1):
        check_best(costs, fleet, count, best)
    tokens = [best.token_ms for best in bests if best is not None]
    if not tokens:
        with pytest.raises(PlanImpossible) as caught:
            make_plan(model, fleet)
        assert caught.value.missing_bytes > 0
        return
    chosen = make_plan(model, fleet)
    check_valid(chosen, model, fleet, streams=2)
    assert 1000 / chosen.tokens_per_second <= min(tokens) * 1.03


@pytest.mark.parametrize(
    ("seed", "alike"),
    [(1, True), (2, False), *[pytest.param(seed, seed % 2 == 1, marks=SLOW) for seed in range(3, 15)]],
)
def test_larger_fleets_come_within_three_percent_of_the_best(seed: int, alike: bool) -> None:
    chance = random.Random(seed)
    sizes = [20 * MB if alike else chance.randrange(5, 60) * MB for _ in range(10)]
    model = ModelFacts("toy", sizes, [500] * 10, chance.randrange(80) * MB, 1000, chance.randrange(80) * MB, 4000)
    fleet = [
        AgentFacts(
            f"id-{i:02}",
            f"pc-{i}",
            130 * MB + int(chance.uniform(0.1, 0.6) * sum(sizes)),
            chance.uniform(0.02, 0.3),
            rtt_ms=chance.choice([None, 1.0, 5.0]),
            bytes_per_s=chance.choice([None, 1e6]),
        )
        for i in range(10)
    ]
    costs = Costs(model, fleet, context_tokens=1000, streams=2, scratch_bytes=SCRATCH)
    for count in (2, 3, 5):
        check_best(costs, fleet, count, by_integer_program(costs, fleet, count))


def check_best(costs: Costs, fleet: list[AgentFacts], count: int, best: Best | None, *, cycle: float = 1.01) -> None:
    if best is None:
        with pytest.raises(PlanImpossible):
            make_plan(costs.model, fleet, stages=count)
        return
    by_id = {agent.device_id: agent for agent in fleet}
    found = make_plan(costs.model, fleet, stages=count).stages
    ranges = [(by_id[stage.device_id], stage.first, stage.last) for stage in found]
    assert len(ranges) == count
    assert cycle_ms(costs, ranges) <= best.cycle_ms * 1.01
    assert latency_ms(costs, ranges) <= best.token_ms * 1.03


def test_a_large_fleet_of_small_pcs_says_what_each_of_them_lacks() -> None:
    model = make_model(layers=40, layer_mb=300)
    with pytest.raises(PlanImpossible, match="more on each") as caught:
        make_plan(model, make_fleet([380] * 200))
    assert 52 * MB <= caught.value.missing_bytes <= 53 * MB  # the ends need 30 MB more than the other layers
