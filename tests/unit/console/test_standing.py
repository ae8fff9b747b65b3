from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agent.link.identity import DeviceId
from agent.link.messages import Resting
from console.api.admin import types as wire
from console.errors import DeployRefused
from console.fleet.policies import RESTING_FACT
from console.planner.types import EMBED, HEAD, AgentFacts, Limit, Pin, Rules
from console.registry.records import DeviceRecord
from console.standing import resolved, rules_of, standing, units_held
from tests.support.libraries import make_library

FACTS = AgentFacts("id", "pc", 1_000_000)
MONDAY_S = 86_400.0 * 4


def make_record(*, tags: list[str] | None = None, **facts: Any) -> DeviceRecord:
    return DeviceRecord(DeviceId("id"), "", "active", "", "pc", facts, "", "file", None, 1, 0.0, 0.0, 0.0, tags or [])


def resting(blocks: list[int], utc_offset_s: float = 0.0) -> dict[str, Any]:
    return {RESTING_FACT: msgspec.structs.asdict(Resting(blocks, utc_offset_s))}


def test_habits_say_how_likely_a_pc_stays_for_the_next_hour() -> None:
    blocks = [30, *[80] * 55]
    found = standing(FACTS, make_record(**resting(blocks)), MONDAY_S)
    assert (found.stay, found.rests) == (0.3, tuple(blocks))
    assert standing(FACTS, make_record(**resting(blocks)), MONDAY_S + 3 * 3600).stay == 0.8
    assert standing(FACTS, make_record(**resting(blocks, 3 * 3600.0)), MONDAY_S).stay == 0.8


@pytest.mark.parametrize("facts", [{}, resting([]), resting([50]), {RESTING_FACT: "often"}, resting([900] * 56)])
def test_a_pc_that_tells_no_habits_counts_as_one_that_stays(facts: dict[str, Any]) -> None:
    found = standing(FACTS, make_record(**facts), MONDAY_S)
    assert (found.stay, found.rests) == (1.0, ())


def test_tags_say_where_a_pc_stands() -> None:
    found = standing(FACTS, make_record(tags=["fast", "network:floor-2", "site:oslo"]), MONDAY_S)
    assert (found.site, found.network) == ("oslo", "floor-2")


def test_units_are_held_only_with_all_their_files(tmp_path: Path) -> None:
    manifest, _ = make_library(tmp_path, layers=3)
    files = {unit.name: (unit.xml.sha256, unit.bin.sha256) for unit in manifest.units}
    assert units_held(manifest, lambda _: False) == frozenset()
    assert units_held(manifest, lambda _: True) == frozenset({0, 1, 2, EMBED, HEAD})
    lacking = files[manifest.layer(1).name][1]
    assert units_held(manifest, lambda files: lacking not in files) == frozenset({0, 2, EMBED, HEAD})


def test_what_a_request_asks_becomes_rules_of_ids() -> None:
    known = {"ab": "abc", "abc": "abc", "cd": "cde", "ef": "efg", "gh": "ghi"}
    looked: list[Sequence[str]] = []

    def resolve(names: Sequence[str]) -> list[str]:
        looked.append(names)
        return [known[name] for name in names]

    asked = wire.PlanRules(
        exclude=["ab", "abc"],
        pins=[wire.PinnedPc("cd", 0, 4), wire.PinnedPc("ef")],
        limits=[wire.LimitedPc("gh", memory_mb=600, layers=5)],
        crossing="sites",
        tokens_per_second=30.0,
    )
    plan = [[wire.GivenStage("ef", 0, 2), wire.GivenStage("gh", 2, 4)], [wire.GivenStage("ab", 0, 4)]]
    request = resolved(wire.DeployRequest("model", devices=["ab", "abc"], rules=asked, replicas=2, plan=plan), resolve)
    assert len(looked) == 1, "whoever resolves reads the whole fleet each time"
    assert request.devices == ["abc"]
    assert request.rules.exclude == ["abc"]
    assert request.plan == [
        [wire.GivenStage("efg", 0, 2), wire.GivenStage("ghi", 2, 4)],
        [wire.GivenStage("abc", 0, 4)],
    ]
    assert rules_of(request) == Rules(
        pins=(Pin("cde", 0, 4), Pin("efg")),
        excluded=frozenset({"abc"}),
        limits={"ghi": Limit(600_000_000, 5)},
        crossing="sites",
        target_tokens_per_second=30.0,
        least_stay=0.5,
    )


def test_a_pc_that_nobody_knows_refuses_the_request() -> None:
    def nobody(names: Any) -> list[str]:
        if names:
            raise DeployRefused(f"There is no PC {names[0]}.")
        return []

    with pytest.raises(DeployRefused, match="There is no PC xy"):
        resolved(wire.DeployRequest("model", rules=wire.PlanRules(pins=[wire.PinnedPc("xy")])), nobody)


@pytest.mark.parametrize("pin", [{"first": 3}, {"last": 3}, {"first": 3, "last": 3}, {"first": 5, "last": 2}])
def test_a_pin_of_half_a_range_is_refused(pin: dict[str, int]) -> None:
    with pytest.raises(msgspec.ValidationError, match="pin"):
        msgspec.convert({"device": "ab", **pin}, wire.PinnedPc)
