"""console.metrics.fleet: every PC is counted once, whatever agents say."""

from __future__ import annotations

from typing import cast, get_args

import pytest

from agent.link.messages import Heartbeat, Hello
from agent.stage.types import Epoch, PipelineId
from console.fleet.events import AgentLost, AgentView, AgentYielded, StageDied
from console.metrics.fleet import OTHER, FleetCounts, agents_by_state, held_by_reason, reason_kind
from console.registry.records import DeviceState


def agent(device_id: str, *reasons: str) -> AgentView:
    beat = Heartbeat(1, "held" if reasons else "available", list(reasons))
    return AgentView(device_id, device_id, cast("Hello", None), beat, 0.0)


def test_every_known_pc_is_in_exactly_one_state() -> None:
    connected = [agent("a"), agent("b"), agent("c", "user_input"), agent("d"), agent("e", "user_input", "on_battery")]
    states = agents_by_state(
        {"active": 9, "pending": 2, "banned": 1}, connected, serving={"a", "e"}, reserve={"a", "b"}, elsewhere=1
    )
    assert {state: count for state, count in states.items() if count} == {
        "serving": 2, "standby": 1, "held": 1, "available": 1, "elsewhere": 1, "offline": 3, "pending": 2, "banned": 1,
    }  # fmt: skip
    assert states.total() == 12


def test_states_without_a_pc_are_told_as_well() -> None:
    """Where nothing is told, a sum over it is no number and compares with nothing: the alert would be silent."""
    states = agents_by_state({}, [], serving=set(), reserve=set(), elsewhere=0)
    assert set(states) >= {
        "serving",
        "standby",
        "held",
        "available",
        "elsewhere",
        "offline",
        *get_args(DeviceState),
    } - {"active"}
    assert not states.total()


def test_a_pc_that_was_retired_a_moment_ago_makes_no_negative_number() -> None:
    states = agents_by_state({}, [agent("a")], serving=set(), reserve=set(), elsewhere=0)
    assert (states["available"], states["offline"]) == (1, 0)


def test_reasons_of_held_pcs_count_once_a_pc() -> None:
    connected = [agent("a", "user_input", "user_input"), agent("b", "user_input", "a story"), agent("c")]
    assert held_by_reason(connected) == {"user_input": 2, OTHER: 1}


@pytest.mark.parametrize("said", ["", "USER_INPUT", "user_input ", 'x"} 1\nfallow_agents{state="y', "ö" * 5000])
def test_what_an_agent_invents_is_no_label(said: str) -> None:
    assert reason_kind(said) == OTHER


def test_only_pcs_that_served_count_as_yielding() -> None:
    counts = FleetCounts()
    serving = [(PipelineId(1), Epoch(2))]
    for event in (
        AgentYielded("a", serving, ["user_input", "on_battery"]),
        AgentYielded("b", [], ["user_input"]),
        AgentYielded("c", serving, []),
        AgentLost("a", "it left"),
        StageDied("a", 1, 2, 0, "it crashed"),
    ):
        counts.on_fleet_event(event)
    assert (counts.yields, counts.lost, counts.stages_died) == ({"user_input": 1, OTHER: 1}, 1, 1)
