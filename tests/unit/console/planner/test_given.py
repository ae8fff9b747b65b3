"""Plans made by hand: what the planner makes checks clean, and nothing that checks clean breaks a rule."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from console.planner.candidates import place_of
from console.planner.given import CheckedPlan, GivenStage, check_given
from console.planner.types import EMBED, AgentFacts, Limit, ModelFacts, Pin, Plan, PlanImpossible, Rules
from tests.support.plans import MB, SCRATCH, changed, make_fleet, make_model, make_plan


def checked(model: ModelFacts, fleet: Sequence[AgentFacts], *pipelines: list[GivenStage], **more: Any) -> CheckedPlan:
    given_ = {"context_tokens": 1000, "streams": 2, "scratch_bytes": SCRATCH} | more
    return check_given(model, fleet, pipelines, **given_)


def stages(*parts: tuple[int, int, int]) -> list[GivenStage]:
    return [GivenStage(f"id-{place}", first, last) for place, first, last in parts]


def by_hand(plan: Plan) -> list[GivenStage]:
    return [GivenStage(stage.device_id, stage.first, stage.last) for stage in plan.stages]


def said(found: CheckedPlan) -> list[tuple[str, int, int]]:
    return [(fault.kind, fault.pipeline, fault.stage) for fault in found.faults]


def test_a_plan_by_hand_is_priced_stage_by_stage() -> None:
    fleet = changed(make_fleet([1000, 1000]), 1, held=frozenset({EMBED, *range(12)}), rtt_ms=2.0)
    found = checked(make_model(), fleet, stages((0, 0, 6), (1, 6, 12)))
    assert not found.faults
    (pipeline,) = found.pipelines
    first, second = pipeline.stages
    assert (first.stage.fetch_bytes, second.stage.fetch_bytes) == (150 * MB, 30 * MB)
    assert first.stage.memory_bytes == SCRATCH + 30 * MB + 6 * (20 * MB + 2_000_000)
    assert first.budget_bytes == 1000 * MB
    assert second.stage.hop_ms == pytest.approx(2.6)
    assert pipeline.plan is not None
    token_ms = sum(one.stage.ms + one.stage.hop_ms for one in pipeline.stages)
    assert pipeline.plan.tokens_per_second == pytest.approx(1000 / token_ms)
    assert any("slowest stage" in note for note in found.notes)
    assert [(pc.name, pc.measured) for pc in found.usable] == [("pc-0", True), ("pc-1", True)]


def test_the_difference_to_the_running_plan_is_told() -> None:
    model, fleet = make_model(), make_fleet([1000] * 3)
    current = make_plan(model, fleet[:2], stages=2)
    border = current.stages[0].last
    first, second = (stage.device_id for stage in current.stages)
    moved = [GivenStage(first, 0, border - 2), GivenStage("id-2", border - 2, border), GivenStage(second, border, 12)]
    found = checked(model, fleet, moved, current=[current])
    (pipeline,) = found.pipelines
    assert [one.moved_layers for one in pipeline.stages] == [0, 2, 0]
    assert pipeline.plan is not None
    assert pipeline.plan.moved_layers == 2
    assert (found.runs, found.joins, found.leaves) == (True, ["pc-2"], [])
    alone = checked(model, fleet, stages((2, 0, 12)), current=[current])
    assert (alone.joins, sorted(alone.leaves)) == (["pc-2"], ["pc-0", "pc-1"])
    first_one = checked(model, fleet, moved)
    assert (first_one.runs, first_one.joins, first_one.leaves) == (False, [], [])
    assert first_one.pipelines[0].stages[1].moved_layers == 0


def test_whole_pipelines_are_in_the_difference_whatever_their_numbers_are() -> None:
    model, fleet = make_model(), make_fleet([1000] * 4)
    one, other = (checked(model, fleet, stages(part)).pipelines[0].plan for part in ((0, 0, 12), (1, 0, 12)))
    assert one is not None
    assert other is not None
    second = checked(model, fleet, by_hand(other), current=[one, other])
    assert second.pipelines[0].stages[0].moved_layers == 0, "it is the former second one"
    assert (second.joins, second.leaves) == ([], ["pc-0"])
    more = checked(model, fleet, by_hand(other), stages((2, 0, 6), (3, 6, 12)), by_hand(one), current=[one, other])
    assert [[stage.moved_layers for stage in pipeline.stages] for pipeline in more.pipelines] == [[0], [6, 6], [0]]
    assert (more.joins, more.leaves) == (["pc-2", "pc-3"], [])
    assert [pipeline.plan.moved_layers for pipeline in more.pipelines if pipeline.plan is not None] == [0, 12, 0]


@pytest.mark.parametrize(
    ("parts", "texts"),
    [
        ([(0, 0, 6)], ["Layers 6 to 11 are on no PC"]),
        ([(0, 1, 6), (1, 6, 12)], ["Layer 0 is on no PC"]),
        ([(0, 0, 7), (1, 6, 12)], ["Layer 6 is on two PCs"]),
        ([(0, 6, 12), (1, 0, 6)], ["Layers 0 to 5 are on no PC", "Layers 0 to 5 are on two PCs"]),
        ([(0, 0, 6), (1, 6, 13)], ["pc-1 has layers 6 to 12; the model's are 0 to 11", "Layers 6 to 11 are on no PC"]),
        ([(0, 0, 12), (1, 12, 12)], ["pc-1 has layers 12 to 11"]),
    ],
)
def test_layers_that_are_missing_or_twice_are_named(parts: list[tuple[int, int, int]], texts: list[str]) -> None:
    found = checked(make_model(), make_fleet([1000, 1000]), stages(*parts))
    assert len(found.faults) == len(texts)
    assert {fault.kind for fault in found.faults} == {"cover"}
    assert all(text in fault.text for text, fault in zip(texts, found.faults, strict=True))
    assert found.pipelines[0].plan is None


def test_what_breaks_a_rule_is_said_at_its_stage() -> None:
    fleet = changed(make_fleet([1000, 200, 1000]), 2, site="oslo")
    rules = Rules(
        excluded=frozenset({"id-3"}),
        limits={"id-0": Limit(layers=2)},
        pins=(Pin("id-0", 0, 4), Pin("id-4")),
    )
    plan = [stages((0, 0, 3), (1, 3, 11), (2, 11, 12)), stages((3, 0, 6), (5, 6, 12)), stages((2, 0, 12)), stages()]
    found = checked(make_model(), fleet, *plan, rules=rules, names={"id-3": "left-out", "id-5": "asleep"})
    assert said(found) == [
        ("layers", 0, 0),
        ("memory", 0, 1),
        ("twice", 0, 2),
        ("place", 0, -1),
        ("excluded", 1, 0),
        ("away", 1, 1),
        ("twice", 2, 0),
        ("empty", 3, -1),
        ("pin", -1, -1),
        ("pin", -1, -1),
    ]
    texts = " ".join(fault.text for fault in found.faults)
    for part in ("held to 2", "pc-1 needs 276 MB", "left-out is left out", "asleep cannot be used now"):
        assert part in texts
    assert "keep it in one of them" in texts
    assert found.pipelines[1].stages[1].stage.ms == 0


def test_a_plan_without_pipelines_says_so() -> None:
    assert said(checked(make_model(), make_fleet([1000]))) == [("empty", -1, -1)]


def test_what_is_no_fault_is_noted() -> None:
    fleet = changed(changed(make_fleet([1000, 1000]), 0, ms_per_mb=None), 1, stay=0.3)
    rules = Rules(target_tokens_per_second=1e5, least_stay=0.5)
    found = checked(make_model(), fleet, stages((0, 0, 6), (1, 6, 12)), rules=rules)
    assert not found.faults
    notes = " ".join(found.notes)
    for part in ("Not measured yet", "pc-0", "stay is 30%", "are not reached", "Not likely to stay: pc-1"):
        assert part in notes


numbers = st.integers(0, 12)


@st.composite
def fleets(draw: st.DrawFn) -> list[AgentFacts]:
    count = draw(st.integers(1, 5))
    return [
        AgentFacts(
            f"id-{place}",
            f"pc-{place}",
            draw(st.integers(0, 600)) * MB,
            draw(st.sampled_from([None, 0.05, 0.1, 0.4])),
            site=draw(st.sampled_from(["", "", "oslo"])),
            rtt_ms=draw(st.sampled_from([None, 3.0])),
            stay=draw(st.sampled_from([1.0, 0.4])),
        )
        for place in range(count)
    ]


@st.composite
def rules_for(draw: st.DrawFn) -> Rules:
    ids = st.sampled_from([f"id-{place}" for place in range(5)])
    return Rules(
        excluded=draw(st.frozensets(ids, max_size=1)),
        limits=draw(
            st.dictionaries(ids, st.builds(Limit, st.integers(100, 400).map(lambda mb: mb * MB), st.integers(1, 9)))
        ),
        pins=tuple(Pin(one) for one in draw(st.frozensets(ids, max_size=1))),
        crossing=draw(st.sampled_from(["none", "sites"])),
    )


@settings(max_examples=30)
@given(fleet=fleets(), rules=rules_for())
def test_what_the_planner_makes_checks_clean_and_is_worth_what_it_said(fleet: list[AgentFacts], rules: Rules) -> None:
    model = make_model()
    try:
        plan = make_plan(model, fleet, rules=rules)
    except PlanImpossible:
        return
    found = checked(model, fleet, by_hand(plan), rules=rules)
    assert not found.faults
    assert found.pipelines[0].plan is not None
    assert msgspec.structs.replace(found.pipelines[0].plan, reasons=[]) == msgspec.structs.replace(plan, reasons=[])


@settings(max_examples=60)
@given(
    fleet=fleets(),
    rules=rules_for(),
    pipelines=st.lists(st.lists(st.tuples(st.integers(0, 5), numbers, numbers), max_size=4), max_size=2),
    borders=st.lists(st.integers(1, 11), max_size=3, unique=True),
)
def test_nothing_that_checks_clean_goes_beyond_a_cap(
    fleet: list[AgentFacts], rules: Rules, pipelines: list[list[tuple[int, int, int]]], borders: list[int]
) -> None:
    whole = [0, *sorted(borders), 12]
    covering = [(place, first, last) for place, (first, last) in enumerate(pairwise(whole))]
    model = make_model()
    by_id = {agent.device_id: agent for agent in fleet}
    for plan in ([stages(*parts) for parts in pipelines], [stages(*covering)]):
        found = checked(model, fleet, *plan, rules=rules)
        assert all(fault.text.endswith(".") for fault in found.faults)
        if found.faults:
            continue
        used = [one.device_id for pipeline in plan for one in pipeline]
        assert len(used) == len(set(used))
        assert {pin.device_id for pin in rules.pins} <= set(used)
        assert not set(used) & rules.excluded
        for given_stages, pipeline in zip(plan, found.pipelines, strict=True):
            held = [layer for one in given_stages for layer in range(one.first, one.last)]
            assert held == list(range(12))
            assert pipeline.plan is not None
            assert len({place_of(by_id[one.device_id], rules.crossing) for one in given_stages}) == 1
            for one in pipeline.plan.stages:
                limit = rules.limits.get(one.device_id, Limit())
                assert one.memory_bytes <= min(by_id[one.device_id].memory_budget_bytes, limit.memory_bytes or 1 << 60)
                assert one.last - one.first <= (limit.layers or 12)
