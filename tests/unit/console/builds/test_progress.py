"""console.builds.progress: what a build is after each thing the exporter says."""

from __future__ import annotations

import msgspec

from console.api.admin.build_types import Build, BuildRequest, Evaluation
from console.builds import progress
from shard_export.library.events import BuildPublished, BuildStarted, LayerDone


def build(**fields: object) -> Build:
    values: dict[str, object] = {
        "build_id": "b", "request": BuildRequest(source="/s", out="/o"), "model_id": "toy", "layer_count": 10,
    }  # fmt: skip
    return Build(**(values | fields))  # type: ignore[arg-type]  # the fields of a build


def layer(index: int, seconds: float = 10.0) -> LayerDone:
    return LayerDone(index, 10, seconds, 0.0, 1e-6, 1e-2)


def test_the_time_left_follows_from_the_layers_that_were_measured() -> None:
    running = progress.begun(build(estimated_s=120.0), 1000.0)
    assert progress.viewed(running, 1000.0).left_s == 120.0
    running = progress.heard(
        running, BuildStarted("toy", "llama", 10, 1, estimated_seconds=240.0, finished_layers=4), 1005.0
    )
    assert progress.viewed(running, 1005.0).left_s == 240.0 * 8 / 12
    running = progress.heard(running, layer(4, 10.0), 1015.0)
    running = progress.heard(running, layer(5, 20.0), 1035.0)
    assert running.layer_s == 15.0
    assert progress.viewed(running, 1040.0).left_s == 15.0 * 6 - 5
    assert (running.phase, running.kept_layers) == ("layers", 4)


def test_a_build_that_says_nothing_for_long_stalls() -> None:
    running = progress.heard(progress.begun(build(), 0.0), layer(0, 200.0), 200.0)
    assert not progress.viewed(running, 900.0).stalled
    assert progress.viewed(running, 1100.0).stalled
    quick = progress.heard(progress.begun(build(), 0.0), layer(0, 1.0), 200.0)
    assert not progress.viewed(quick, 499.0).stalled
    assert progress.viewed(quick, 501.0).stalled
    evaluating = msgspec.structs.replace(quick, phase="evaluating")
    assert not progress.viewed(evaluating, 5000.0).stalled


def test_the_last_layer_is_not_the_end() -> None:
    running = progress.heard(progress.begun(build(), 0.0), layer(9), 1.0)
    assert running.phase == "finishing"
    done = progress.heard(running, BuildPublished("/o", "d" * 64, 5, 1.0, 0.8, 0.1), 2.0)
    ended = progress.ended(done, 0, "pause", "", 3.0)
    assert (ended.state, ended.digest, ended.message, ended.spent_s) == ("running", "d" * 64, "", 3.0)


def test_an_end_without_a_word_names_the_last_words() -> None:
    running = progress.begun(build(), 0.0)
    assert "Its last words: boom" in progress.ended(running, 1, "", "boom", 1.0).message
    assert "(exit code 3)" in progress.ended(running, 3, "", "", 1.0).message


def test_what_was_built_when_the_service_ended_is_built_afterwards() -> None:
    running = progress.heard(progress.begun(build(), 0.0), BuildPublished("/o", "d" * 64, 5, 1.0, 0.8, 0.1), 2.0)
    found = progress.found_again(msgspec.structs.replace(running, phase="evaluating"), 9.0)
    assert (found.state, found.evaluation_problem) == ("built", "The console's service ended meanwhile.")
    assert "publish it now" in found.message


def test_what_an_earlier_attempt_made_counts_no_more() -> None:
    once = progress.heard(progress.begun(build(), 0.0), BuildPublished("/o", "d" * 64, 5, 1.0, 0.8, 0.1), 2.0)
    once = msgspec.structs.replace(
        once, evaluation=Evaluation("int4", 5.0, 9, 0.8, 0.1, 22.0, 23.0), evaluation_problem="It was left out."
    )
    again = progress.begun(msgspec.structs.replace(once, state="failed"), 10.0)
    assert (again.digest, again.size_bytes, again.gate) == ("", 0, None)
    assert (again.evaluation, again.evaluation_problem) == (None, "")
    assert progress.ended(again, 0, "", "", 11.0).state == "failed"


def test_who_did_not_ask_for_publishing_is_not_told_of_it_after_a_restart() -> None:
    request = BuildRequest(source="/s", out="/o", publish=False)
    running = progress.heard(
        progress.begun(build(request=request), 0.0), BuildPublished("/o", "d" * 64, 5, 1.0, 0.8, 0.1), 2.0
    )
    found = progress.found_again(running, 9.0)
    assert (found.state, found.message) == ("built", "")


def test_times_of_several_attempts_add_up() -> None:
    once = progress.ended(progress.begun(build(), 0.0), 130, "pause", "", 7.0)
    twice = progress.ended(progress.begun(once, 100.0), 130, "pause", "", 105.0)
    assert twice.spent_s == 12.0
