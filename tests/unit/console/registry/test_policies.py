"""What the administrator wants of volunteering PCs, kept with its revisions and its history."""

from __future__ import annotations

import pytest

from agent.volunteer.errors import WishRefused
from agent.volunteer.policy import Wishes
from console.registry.audit import Actor
from console.registry.policies import combined
from console.registry.registry import Registry
from tests.support.enrolment import Clock


def test_a_pc_gets_the_tightest_of_what_applies_to_it(registry: Registry) -> None:
    registry.policies.change("", {"idle_start_s": 600, "exclusive_programs": ["obs"]})
    registry.policies.change("lab", {"idle_start_s": 120, "exclusive_programs": ["game"], "enabled": False})
    _, everybody = combined(registry.policies.list(), [])
    _, lab = combined(registry.policies.list(), ["lab", "other"])
    assert everybody == Wishes(idle_start_s=600.0, exclusive_programs=frozenset({"obs"}))
    assert lab == Wishes(idle_start_s=600.0, exclusive_programs=frozenset({"obs", "game"}), enabled=False)


def test_nothing_was_ever_wanted_of_a_new_fleet(registry: Registry) -> None:
    assert combined(registry.policies.list(), ["lab"]) == (0, Wishes())


def test_the_revision_grows_with_every_change_and_past_what_a_lost_registry_had(
    registry: Registry, clock: Clock
) -> None:
    first = registry.policies.change("", {"idle_start_s": 600}).revision
    second = registry.policies.change("lab", {"enabled": False}).revision
    clock.now_s += 5000
    third = registry.policies.change("", {"idle_start_s": None}).revision
    assert first < second < third
    assert third >= clock.now_s - 1
    assert combined(registry.policies.list(), []) == (third, Wishes())


def test_every_change_is_in_the_audit_log(registry: Registry) -> None:
    registry.policies.change("lab", {"schedule": "Sat 00:00-24:00", "paused": True}, Actor("user:ann", "192.0.2.1"))
    entry = registry.audit.list(limit=1)[0]
    assert (entry.actor, entry.action, entry.target) == ("user:ann", "policy.change", "lab")
    assert entry.detail == {"schedule": "Sat 00:00-24:00", "paused": True}


@pytest.mark.parametrize("values", [{"moon_phase": 1}, {"idle_start_s": -1}, {"enabled": "yes"}, {"unattended": True}])
def test_what_is_not_possible_changes_nothing(registry: Registry, values: dict[str, bool | int | str]) -> None:
    registry.policies.change("", {"idle_start_s": 600})
    before = registry.policies.list()
    with pytest.raises(WishRefused):
        registry.policies.change("", dict(values))
    assert registry.policies.list() == before


def test_what_no_pc_could_be_told_is_refused(registry: Registry) -> None:
    registry.policies.change("a", {"exclusive_programs": [f"program-{number}" for number in range(600)]})
    with pytest.raises(WishRefused, match="1000 at most"):
        registry.policies.change("b", {"exclusive_programs": [f"other-{number}" for number in range(600)]})
