"""What the models' page says, decided without Qt: builds, deployments, deliveries, commands to copy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from console.api.admin import types as wire
from console.api.admin.build_types import Build, BuildRequest, Evaluation, Gate
from console.fleet.delivery import Delivered, DeliveryEnded, RingStarted
from console.gui.models import rings, rollout, texts
from console.pipeline.types import SpeculationStatus
from tests.support.shown_fleet import make_pipeline

ASKED = wire.DeployRequest("toy")


def make_build(**fields: Any) -> Build:
    values: dict[str, Any] = {
        "build_id": "b1", "request": BuildRequest(source="/s/toy", out="/s/library"), "model_id": "toy",
        "state": "running", "phase": "layers", "layer": 3, "layer_count": 8,
    }  # fmt: skip
    return Build(**(values | fields))


def planned(*names: str) -> wire.Planned:
    stages = [
        wire.PlannedStage(index, f"id-{name}", name, index * 2, index * 2 + 2) for index, name in enumerate(names)
    ]
    return wire.Planned(stages, ["They are the fastest."], 1)


def test_a_progress_bar_tells_running_from_stalled_and_from_failed() -> None:
    assert texts.build_state_text(make_build()) == "running"
    assert texts.build_state_text(make_build(stalled=True)) == "stalled"
    assert texts.build_state_text(make_build(state="failed")) == "failed"
    rows = texts.phase_rows(make_build(request=BuildRequest(source="/s", out="/o", evaluate=True)))
    assert [(row.text, row.share, row.said) for row in rows] == [
        ("Open the model", 1.0, "done"),
        ("Tokenizer and embedding", 1.0, "done"),
        ("Layers", 3 / 8, "3 of 8"),
        ("Head and final check", 0.0, ""),
        ("Evaluate", 0.0, ""),
    ]
    assert texts.phase_rows(make_build(phase="finishing"))[3].share is None
    assert texts.phase_rows(make_build(phase="finishing", state="failed"))[3].share == 0.0
    assert all(row.share == 1.0 for row in texts.phase_rows(make_build(state="built", phase="done", layer=8)))


@pytest.mark.parametrize(
    ("fields", "said"),
    [({"left_s": 1700.0}, "about 28 min"), ({}, "not known"), ({"state": "paused", "left_s": 9.0}, "-")],
)
def test_the_time_left_is_said_only_while_it_passes(fields: dict[str, Any], said: str) -> None:
    assert texts.left_text(make_build(**fields)) == said


def test_ending_a_build_says_what_is_kept() -> None:
    assert "3 of 8 layers are finished. They are kept beside /s/library" in texts.kept_text(make_build())
    assert "nothing is lost and nothing is kept" in texts.kept_text(make_build(layer=0))


def test_quality_is_said_by_the_gate_and_by_the_evaluation() -> None:
    found = Evaluation("int4_gptq", 5.01, 769, 0.83, 0.104, 22.67, 23.1)
    lines = texts.quality_lines(Gate(0.9, 0.05), found, "")
    assert "90.0% of the next tokens" in lines[0]
    assert "769 tokens: 83.0% the same, mean KL 0.104, perplexity 23.10 (source: 22.67)" in lines[1]
    assert texts.quality_lines(None, None, "It was left out.") == ["Evaluation: It was left out."]


def test_a_pipeline_says_how_old_the_proof_is_and_how_it_guesses() -> None:
    pipeline = make_pipeline(speculation=SpeculationStatus("lookup", 0.62, 3.1, 2.4), standbys=[
        wire.StandbyView("9" * 32, "pc-hall", "warm", 0, 12, ready=False)
    ])  # fmt: skip
    assert texts.pipeline_text(pipeline, 1) == "ready. A token came through all stages 3 s ago, in 240 ms."
    assert texts.pipeline_text(pipeline, 2).startswith("Pipeline 1: ready.")
    failed = msgspec.structs.replace(pipeline, probe=wire.Probe(ok=False, age_s=70.0, message="pc-7 is away."))
    assert texts.pipeline_text(failed, 1) == "ready. The last probe failed 70 s ago: pc-7 is away."
    assert "from the text so far: 62% right, 2.4 tokens a round" in texts.speculation_text(pipeline)
    assert texts.standbys_text(pipeline) == "Standing by: pc-hall (warm, layers 0-11, getting ready)."
    assert texts.stage_rows(pipeline)[1] == ("12-23", "pc-0001", "paged", "through the console", "1.2")


def test_a_rollout_follows_its_stages_to_the_first_token() -> None:
    state = rollout.Rollout(ASKED)
    assert rollout.headline(state, 0.0) == ("The planner chooses the PCs.", False)
    state = rollout.after(state, planned("ann", "bob"), 1.0)
    state = rollout.after(state, wire.Loading(1, "bob", "fetch", 50, 200), 2.0)
    assert [(stage.said, stage.share) for stage in state.stages] == [("waits", 0.0), ("fetches 50 B of 200 B", 0.25)]
    state = rollout.after(state, wire.Loading(1, "bob", "load", 0, 1), 2.0)
    assert state.stages[1].share is None
    for number, name in enumerate(("ann", "bob")):
        state = rollout.after(state, wire.StageUp(number, name, "paged", True, 1500.0, 3_000_000), 3.0)
    assert rollout.headline(state, 3.0) == ("All stages are loaded; the first token is on its way.", False)
    state = rollout.after(state, planned("cid"), 4.0)
    assert [stage.device_name for stage in state.stages] == ["ann", "bob", "cid"]
    state = rollout.after(state, wire.Ready("toy", 48.0), 5.0)
    assert rollout.headline(state, 99.0) == ("Ready: a token came through all stages in 48 ms.", False)
    assert not state.goes_on


def test_a_rollout_that_breaks_stalls_or_is_lost_says_what_to_do() -> None:
    state = rollout.after(rollout.Rollout(ASKED), planned("ann"), 1.0)
    state = rollout.after(state, planned("bob"), 1.0)
    assert [stage.device_name for stage in state.stages] == ["bob"], "a plan that is not up was made anew"
    text, bad = rollout.headline(state, 100.0)
    assert ("Nothing was heard for 99 s" in text, bad) == (True, True)
    lost = replace(state, lost="The console does not answer.")
    assert rollout.headline(lost, 0.0)[0].endswith("The deployment itself goes on; the list of models shows how it is.")
    never = rollout.Rollout(ASKED, lost="The console does not answer.")
    assert rollout.headline(never, 0.0)[0].endswith("Whether it was begun, the list of models shows.")
    broken = rollout.after(state, wire.Broken("memory", "bob has too little memory; plan fewer layers."), 2.0)
    text, bad = rollout.headline(broken, 2.0)
    assert text.startswith("It failed: bob has too little memory; plan fewer layers. What was served before")
    assert bad


def test_each_stage_of_a_rollout_counts_alike_and_nothing_goes_back() -> None:
    state = rollout.after(rollout.Rollout(ASKED), planned("ann", "bob"), 1.0)
    assert (state.share, rollout.at_work(state)) == (0.0, "")
    state = rollout.after(state, wire.Loading(0, "ann", "fetch", 1_000_000, 2_000_000), 1.0)
    assert state.share == pytest.approx(0.2)
    assert rollout.at_work(state) == "ann fetches 1 MB of 2 MB."
    for event in (wire.Loading(0, "ann", "load", 0, 1), wire.Loading(0, "ann", "fetch", 0, 2)):
        state = rollout.after(state, event, 1.0)
        assert state.share == pytest.approx(0.4)
    state = rollout.after(state, wire.Loading(1, "bob", "load", 0, 1), 1.0)
    assert rollout.at_work(state).endswith("; 1 more is at it.")
    state = rollout.after(state, wire.StageUp(0, "ann", "paged", True, 1.0, 1), 1.0)
    assert state.share == pytest.approx(0.9)
    ended = rollout.after(state, wire.Ready("toy", 48.0), 1.0)
    assert (ended.share, rollout.at_work(ended)) == (1.0, "")


def test_pipelines_that_are_still_to_come_count_and_those_that_are_up_stay() -> None:
    state = rollout.Rollout(msgspec.structs.replace(ASKED, replicas=2))
    state = rollout.after(state, planned("ann"), 1.0)
    state = rollout.after(state, wire.StageUp(0, "ann", "paged", True, 1.0, 1), 1.0)
    assert state.share == pytest.approx(0.5)
    state = rollout.after(state, planned("bob", "cid"), 2.0)
    assert state.share == pytest.approx(0.5)
    state = rollout.after(state, planned("dan"), 3.0)
    assert [stage.device_name for stage in state.stages] == ["ann", "dan"], "what was up is not planned anew"


def test_what_a_form_of_a_deployment_does_not_show_is_said() -> None:
    assert texts.former_text(None) == texts.former_text(ASKED) == ""
    by_hand = msgspec.structs.replace(ASKED, plan=[[wire.GivenStage("a", 0, 2)]])
    assert "plan made by hand. That is given up" in texts.former_text(by_hand)
    rules = wire.PlanRules(exclude=["a"])
    for ruled in (wire.DeployRequest("toy", devices=["a"]), wire.DeployRequest("toy", rules=rules)):
        assert "asked of its PCs before stays" in texts.former_text(ruled)


def test_a_delivery_that_was_refused_or_never_heard_of_claims_nothing() -> None:
    refused = rings.after(rings.Delivery("toy"), DeliveryEnded(0, 0, "No PC is connected."))
    assert rings.headline(refused) == ("No PC is connected.", True)
    never = rings.Delivery("toy", lost="The console does not answer.")
    assert rings.headline(never)[0].endswith("Whether it was begun, the list of deliveries shows.")
    heard = rings.after(never, RingStarted(1, 1, 20))
    assert rings.headline(heard)[0].endswith("The delivery itself goes on.")


def test_a_delivery_is_followed_ring_by_ring() -> None:
    state = rings.after(rings.Delivery("toy"), RingStarted(1, 1, 20))
    state = rings.after(state, Delivered("a"))
    state = rings.after(state, RingStarted(2, 10, 20))
    state = rings.after(state, Delivered("b", "b is away; switch it on."))
    text, bad = rings.headline(state)
    assert (text, bad) == ("1 of 20 PCs have it, 1 could not be brought it. Ring 2 goes up to 10 of them.", True)
    stopped = rings.after(state, DeliveryEnded(1, 1, "1 of 9 PCs of ring 2 failed."))
    assert "what they have they keep. Deliver again to go on." in rings.headline(stopped)[0]
    half = rings.after(state, DeliveryEnded(19, 1))
    assert "only what is missing is sent" in rings.headline(half)[0]
    whole = rings.after(rings.after(rings.Delivery("toy"), Delivered("a")), DeliveryEnded(1, 0))
    assert rings.headline(whole)[0].endswith("The delivery is complete.")
