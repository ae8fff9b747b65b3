from __future__ import annotations

import random
from itertools import permutations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from console.planner.candidates import beside, place_of
from console.planner.costs import Costs
from console.planner.search import latency_ms
from console.planner.types import EMBED, HEAD, AgentFacts, Limit, ModelFacts, Pin, PlanImpossible, Rules, Speed
from tests.support.plan_oracles import cycle_ms, every_split
from tests.support.plans import MB, SCRATCH, changed, make_fleet, make_model, make_plan

EVERYTHING = frozenset({EMBED, HEAD, *range(12)})


def ids(*places: int) -> frozenset[str]:
    return frozenset(f"id-{place}" for place in places)


def test_an_excluded_pc_is_not_used() -> None:
    found = make_plan(make_model(), make_fleet([1000, 1000], [0.1, 0.2]), rules=Rules(excluded=ids(0)))
    assert [stage.name for stage in found.stages] == ["pc-1"]
    assert any("Left out by the administrator: 1 PC." in reason for reason in found.reasons)


def test_a_limit_of_memory_is_obeyed() -> None:
    fleet = make_fleet([1000, 1000], [0.1, 0.2])
    found = make_plan(make_model(), fleet, rules=Rules(limits={"id-0": Limit(memory_bytes=240 * MB)}))
    assert max(stage.memory_bytes for stage in found.stages if stage.name == "pc-0") <= 240 * MB


def test_a_limit_of_layers_is_obeyed_and_said() -> None:
    fleet = make_fleet([1000, 1000], [0.1, 0.1])
    found = make_plan(make_model(), fleet, stages=2, rules=Rules(limits={"id-0": Limit(layers=2)}))
    assert next(stage.last - stage.first for stage in found.stages if stage.name == "pc-0") == 2
    assert any("limit by the administrator: pc-0" in reason for reason in found.reasons)


def test_a_pinned_pc_takes_part_even_where_others_are_better() -> None:
    found = make_plan(make_model(), make_fleet([1000, 1000, 1000], [0.1, 0.1, 0.9]), rules=Rules(pins=(Pin("id-2"),)))
    assert "pc-2" in [stage.name for stage in found.stages]


@pytest.mark.parametrize("pcs", [3, 20])
def test_a_pinned_range_is_kept(pcs: int) -> None:
    fleet = make_fleet([1000] * pcs, [0.1 + 0.01 * place for place in range(pcs)])
    found = make_plan(make_model(), fleet, stages=3, rules=Rules(pins=(Pin("id-2", 4, 7),)))
    assert [(stage.first, stage.last) for stage in found.stages if stage.name == "pc-2"] == [(4, 7)]


def test_a_pinned_pc_in_a_large_fleet_is_part_of_the_plan() -> None:
    fleet = make_fleet([1000] * 20, [0.1 + 0.01 * place for place in range(20)])
    found = make_plan(make_model(), fleet, rules=Rules(pins=(Pin("id-19"),)))
    assert "pc-19" in [stage.name for stage in found.stages]


def test_a_pinned_pc_that_is_away_is_named() -> None:
    with pytest.raises(PlanImpossible, match="id-7"):
        make_plan(make_model(), make_fleet([1000]), rules=Rules(pins=(Pin("id-7"),)))


def test_pins_that_cannot_be_kept_are_told_from_missing_memory() -> None:
    rules = Rules(pins=(Pin("id-0", 0, 6), Pin("id-1", 4, 12)))
    with pytest.raises(PlanImpossible, match="pins and limits"):
        make_plan(make_model(), make_fleet([1000, 1000]), rules=rules)


def test_a_pin_beyond_the_last_layer_is_named() -> None:
    rules = Rules(pins=(Pin("id-0"), Pin("id-1", 10, 13)))
    with pytest.raises(PlanImpossible, match="numbered 0 to 11: the pin of pc-1 names 10 to 12"):
        make_plan(make_model(), make_fleet([1000, 1000]), rules=rules)


def test_a_pipeline_stays_at_one_site() -> None:
    fleet = [
        msgspec.structs.replace(agent, site=site)
        for agent, site in zip(make_fleet([300] * 4), ["oslo", "bern", "oslo", "bern"], strict=True)
    ]
    found = make_plan(make_model(), fleet)
    assert {stage.name for stage in found.stages} in ({"pc-0", "pc-2"}, {"pc-1", "pc-3"})
    assert any("at oslo" in reason or "at bern" in reason for reason in found.reasons)


def test_sites_are_crossed_only_where_that_is_allowed() -> None:
    fleet = changed(changed(make_fleet([300, 300]), 0, site="oslo"), 1, site="bern")
    with pytest.raises(PlanImpossible, match="at bern"):
        make_plan(make_model(), fleet)
    assert len(make_plan(make_model(), fleet, rules=Rules(crossing="sites")).stages) == 2


def test_too_few_pcs_in_each_place_are_told_from_missing_memory() -> None:
    fleet = make_fleet([1000] * 4)
    for place in range(4):
        fleet = changed(fleet, place, site=["oslo", "bern"][place % 2])
    with pytest.raises(PlanImpossible, match=r"3 PCs are needed in one place .* 2 are there") as caught:
        make_plan(make_model(), fleet, stages=3)
    assert (caught.value.missing_agents, caught.value.missing_bytes) == (1, 0)
    assert len(make_plan(make_model(), fleet, stages=3, rules=Rules(crossing="sites")).stages) == 3


def test_a_place_with_enough_pcs_is_told_what_memory_it_lacks() -> None:
    fleet = make_fleet([1000, 1000, 200, 200, 200])
    for place in range(2, 5):
        fleet = changed(fleet, place, site="bern")
    with pytest.raises(PlanImpossible, match=r"3 PCs offer .* at bern") as caught:
        make_plan(make_model(), fleet, stages=3)
    assert caught.value.missing_bytes > 0


def test_networks_of_a_site_are_crossed_only_where_that_is_allowed() -> None:
    fleet = changed(changed(make_fleet([300, 300]), 0, network="a"), 1, network="b")
    with pytest.raises(PlanImpossible, match="missing"):
        make_plan(make_model(), fleet)
    assert len(make_plan(make_model(), fleet, rules=Rules(crossing="networks")).stages) == 2


def test_of_pcs_that_are_alike_the_one_that_stays_is_taken() -> None:
    found = make_plan(make_model(), changed(make_fleet([1000, 1000]), 0, stay=0.5))
    assert found.stages[0].name == "pc-1"


def test_of_pcs_that_stay_alike_the_one_that_holds_the_model_is_taken() -> None:
    found = make_plan(make_model(), changed(make_fleet([1000] * 3), 2, held=EVERYTHING))
    assert found.stages[0].name == "pc-2"
    assert found.fetch_bytes == 0


def test_a_pc_that_is_likely_to_leave_is_used_only_where_the_model_needs_it() -> None:
    rules = Rules(least_stay=0.5)
    fleet = changed(make_fleet([1000, 1000], [0.1, 0.3]), 0, stay=0.4)
    assert make_plan(make_model(), fleet, rules=rules).stages[0].name == "pc-1"
    needed = make_plan(make_model(), changed(make_fleet([300, 300]), 0, stay=0.4), rules=rules)
    assert len(needed.stages) == 2
    assert any("not likely to stay: pc-0" in reason for reason in needed.reasons)


def test_a_far_pc_is_passed_over_for_a_near_one() -> None:
    found = make_plan(make_model(), changed(make_fleet([1000, 1000], [0.1, 0.11]), 0, rtt_ms=80.0))
    assert found.stages[0].name == "pc-1"


def test_a_thin_link_counts_by_what_a_token_takes() -> None:
    model = msgspec.structs.replace(make_model(), hidden_bytes=10_000)
    fleet = changed(make_fleet([300, 300, 300], [0.1, 0.1, 0.11]), 0, bytes_per_s=100_000)
    found = make_plan(model, fleet)
    assert sorted(stage.name for stage in found.stages) == ["pc-1", "pc-2"]


def test_the_wanted_rate_takes_more_pcs_than_the_fewest() -> None:
    fleet = make_fleet([1000] * 4)
    alone = make_plan(make_model(), fleet)
    wanted = 2.5 * alone.full_tokens_per_second
    found = make_plan(make_model(), fleet, rules=Rules(target_tokens_per_second=wanted))
    assert (len(alone.stages), len(found.stages)) == (1, 3)
    assert found.full_tokens_per_second >= wanted
    assert "wanted rate" in found.reasons[0]


def test_a_rate_that_nobody_reaches_is_said() -> None:
    found = make_plan(make_model(), make_fleet([1000] * 2), rules=Rules(target_tokens_per_second=1e6))
    assert len(found.stages) == 2
    assert any("are not reached" in reason for reason in found.reasons)


def test_measured_units_count_before_megabytes() -> None:
    slow = Speed(layer_bytes=20 * MB, layer_ms=50.0)
    found = make_plan(make_model(), changed(make_fleet([1000, 1000], [0.1, 0.1]), 0, speed=slow))
    assert found.stages[0].name == "pc-1"


def test_a_measured_pc_takes_what_its_units_took() -> None:
    speed = Speed(layer_bytes=20 * MB, layer_ms=2.0, fixed_ms=1.5, embed_ms=0.5, head_ms=3.0)
    found = make_plan(make_model(), [AgentFacts("id", "pc", 1000 * MB, speed=speed)])
    assert found.stages[0].ms == pytest.approx(1.5 + 12 * 2.0 + 0.5 + 3.0)


def test_batching_counts_where_every_pc_was_measured_with_it() -> None:
    one = Speed(layer_bytes=20 * MB, layer_ms=2.0)
    eight = msgspec.structs.replace(one, layer_ms_8=4.0)
    plain = make_plan(make_model(), [AgentFacts("id", "pc", 1000 * MB, speed=one)], streams=8)
    batched = make_plan(make_model(), [AgentFacts("id", "pc", 1000 * MB, speed=eight)], streams=8)
    assert batched.tokens_per_second == plain.tokens_per_second
    assert batched.full_tokens_per_second == pytest.approx(4 * plain.full_tokens_per_second, rel=0.05)


def test_who_may_take_over_is_where_the_rest_of_the_plan_is_and_not_left_out() -> None:
    sites = ["oslo", "oslo", "bern", "oslo", "oslo"]
    fleet = [
        msgspec.structs.replace(agent, site=site) for agent, site in zip(make_fleet([300] * 5), sites, strict=True)
    ]
    stages = make_plan(make_model(), fleet[:2], stages=2).stages
    rules = Rules(excluded=ids(3))
    assert [agent.name for agent in beside(fleet, stages, rules)] == ["pc-0", "pc-1", "pc-4"]
    assert len(beside(fleet, stages, Rules(crossing="sites"))) == 5
    assert [agent.name for agent in beside(fleet[2:], stages, rules)] == ["pc-2"]
    assert [agent.name for agent in beside(fleet[2:], stages, Rules())] == ["pc-3", "pc-4"]
    limited = Rules(limits={"id-4": Limit(layers=2)})
    assert [agent.name for agent in beside(fleet, stages, limited)] == ["pc-0", "pc-1", "pc-3"]


FACTS = st.tuples(
    st.integers(120, 500), st.floats(0.02, 1.0), st.sampled_from(["", "a", "b"]), st.sampled_from([0.0, 0.3, 1.0])
)


@settings(max_examples=40, deadline=None)
@given(st.lists(FACTS, min_size=1, max_size=4), st.data())
def test_whatever_the_rules_a_plan_obeys_them_and_is_found_if_there_is_one(
    facts: list[tuple[int, float, str, float]], data: st.DataObject
) -> None:
    layers = data.draw(st.integers(1, 6))
    model = ModelFacts("toy", [30 * MB] * layers, [500] * layers, 20 * MB, 1000, 40 * MB)
    fleet = [
        AgentFacts(f"id-{i}", f"pc-{i}", memory * MB, speed, site=site, stay=stay)
        for i, (memory, speed, site, stay) in enumerate(facts)
    ]
    some = st.sampled_from([agent.device_id for agent in fleet])
    first = data.draw(st.integers(0, layers))  # an administrator may name layers that are not there
    last = data.draw(st.integers(first + 1, layers + 2))
    rules = Rules(
        pins=data.draw(st.sampled_from([(), (Pin("id-0"),), (Pin("id-0", first, last),)])),
        excluded=frozenset(data.draw(st.sets(some, max_size=1))) - {"id-0"},
        limits={data.draw(some): Limit(layers=data.draw(st.integers(1, layers)))},
        crossing=data.draw(st.sampled_from(["none", "sites"])),
        least_stay=data.draw(st.sampled_from([0.0, 0.5])),
    )
    costs = Costs(model, fleet, context_tokens=1000, streams=2, scratch_bytes=SCRATCH, limits=rules.limits)

    def obeys(ranges: list[tuple[AgentFacts, int, int]]) -> bool:
        now = {agent.device_id: (first, last) for agent, first, last in ranges}
        return (
            not rules.excluded & now.keys()
            and all(pin.device_id in now and pin.first in (None, now[pin.device_id][0]) for pin in rules.pins)
            and all(pin.last in (None, now[pin.device_id][1]) for pin in rules.pins)
            and (rules.crossing == "sites" or len({agent.site for agent, _, _ in ranges}) == 1)
            and all(costs.fits(*part) for part in ranges)
        )

    possible = [
        ranges for count in range(1, len(fleet) + 1) for ranges in every_split(costs, fleet, count) if obeys(ranges)
    ]
    if not possible:
        with pytest.raises(PlanImpossible):
            make_plan(model, fleet, rules=rules)
        return
    by_id = {agent.device_id: agent for agent in fleet}
    found = make_plan(model, fleet, rules=rules)
    ranges = [(by_id[stage.device_id], stage.first, stage.last) for stage in found.stages]
    assert obeys(ranges)
    likely = [one for one in possible if is_likely(one, rules)]
    assert is_likely(ranges, rules) or not likely
    fastest = min(latency_ms(costs, one) for one in shortest_cycles(costs, likely or possible, rules))
    assert 1000 / found.tokens_per_second <= fastest * 1.03


def is_likely(ranges: list[tuple[AgentFacts, int, int]], rules: Rules) -> bool:
    pinned = {pin.device_id for pin in rules.pins}
    return all(agent.stay >= rules.least_stay for agent, _, _ in ranges if agent.device_id not in pinned)


def shortest_cycles(
    costs: Costs, possible: list[list[tuple[AgentFacts, int, int]]], rules: Rules
) -> list[list[tuple[AgentFacts, int, int]]]:
    """Of each number of stages in each place, the splits with the shortest cycle."""
    best: dict[object, float] = {}
    keyed = [((len(one), place_of(one[0][0], rules.crossing)), cycle_ms(costs, one), one) for one in possible]
    for key, cycle, _ in keyed:
        best[key] = min(cycle, best.get(key, cycle))
    return [one for key, cycle, one in keyed if cycle <= best[key] * (1 + 1e-9)]


def test_a_large_fleet_of_every_kind_is_planned_alike_in_any_order() -> None:
    chance = random.Random(9)
    fleet = [
        AgentFacts(
            f"id-{i:02}",
            f"pc-{i}",
            chance.randrange(150, 600) * MB,
            chance.choice([None, 0.1, 0.2]),
            stay=chance.choice([0.2, 0.9]),
            held=chance.choice([frozenset(), EVERYTHING]),
            site=chance.choice(["oslo", "bern"]),
            rtt_ms=chance.choice([None, 2.0]),
        )
        for i in range(24)
    ]
    expected = make_plan(make_model(), fleet)
    for _ in range(3):
        chance.shuffle(fleet)
        assert make_plan(make_model(), fleet) == expected


def test_pcs_that_are_alike_in_all_are_taken_by_their_ids() -> None:
    for order in permutations(make_fleet([300, 300, 300])):
        assert [stage.name for stage in make_plan(make_model(), list(order)).stages] == ["pc-0", "pc-1"]
