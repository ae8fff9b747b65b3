from __future__ import annotations

import argparse
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

import pytest

from console.api.admin import types as wire
from console.api.admin.plan_types import PlannedPipeline, PlanRequest, Plans
from console.cli import build_parser, main
from console.cli_deploy import ASKED, request_from
from console.cli_plan import RULES, moment_of, rules_from
from console.errors import ClientError
from console.plan_files import MOST_BYTES, read_plan, request_with, write_plan
from console.planner.types import Plan, PlannedStage

MONDAY_NOON = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)


def parsed(*arguments: str) -> argparse.Namespace:
    return build_parser().parse_args(["plan", "model", *arguments])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("13:30", datetime(2026, 1, 5, 13, 30, tzinfo=UTC)),
        ("9:00", datetime(2026, 1, 6, 9, 0, tzinfo=UTC)),
        ("Tue 09:00", datetime(2026, 1, 6, 9, 0, tzinfo=UTC)),
        ("monday 14:00", datetime(2026, 1, 5, 14, 0, tzinfo=UTC)),
        ("Mon 09:00", datetime(2026, 1, 12, 9, 0, tzinfo=UTC)),
        ("Sun 23:59", datetime(2026, 1, 11, 23, 59, tzinfo=UTC)),
    ],
)
def test_a_time_is_the_next_one_the_clock_shows(text: str, expected: datetime) -> None:
    assert moment_of(text, MONDAY_NOON) == expected


@pytest.mark.parametrize("text", ["", "noon", "24:00", "9:60", "Foo 9:00", "Tue", "9", "Tue 9:00 pm"])
def test_what_is_no_time_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ClientError, match="Tue 09:00"):
        moment_of(text, MONDAY_NOON)


def test_rules_are_read_from_the_options() -> None:
    options = parsed(
        *("--exclude", "ab", "--pin", "cd:0-4", "--pin", "ef", "--limit", "gh=4GB", "--limit", "ij=12layers"),
        *("--limit", "kl=600MB", "--cross", "networks", "--rate", "30"),
    )
    assert rules_from(options) == wire.PlanRules(
        exclude=["ab"],
        pins=[wire.PinnedPc("cd", 0, 4), wire.PinnedPc("ef")],
        limits=[
            wire.LimitedPc("gh", memory_mb=4000),
            wire.LimitedPc("ij", layers=12),
            wire.LimitedPc("kl", memory_mb=600),
        ],
        crossing="networks",
        tokens_per_second=30.0,
    )


def test_deploying_takes_the_same_rules_and_none_by_default() -> None:
    options = build_parser().parse_args(["deploy", "model", "--exclude", "ab"])
    assert rules_from(options) == wire.PlanRules(exclude=["ab"])
    assert rules_from(build_parser().parse_args(["deploy", "model"])) == wire.PlanRules()


@pytest.mark.parametrize(
    "arguments", [("--pin", "ab:4-4"), ("--pin", "ab:4"), ("--limit", "ab"), ("--limit", "ab=4"), ("--limit", "=4GB")]
)
def test_a_rule_that_cannot_be_read_says_how_to_write_it(arguments: tuple[str, str]) -> None:
    with pytest.raises(ClientError, match="Write '"):
        rules_from(parsed(*arguments))


def test_a_plan_is_written_to_a_file_and_read_back(tmp_path: Path) -> None:
    stages = [
        PlannedStage("id-a", "a", "CPU", "auto", 0, 3, 1.0, 1),
        PlannedStage("id-b", "b", "CPU", "auto", 3, 4, 1.0, 1),
    ]
    plans = Plans("small", [PlannedPipeline(Plan("small", 256, 2, stages, 10.0, 20.0, []), [])], [])
    asked = request_with(wire.DeployRequest("small", stages=2, context=256, streams=2), plans)
    assert asked.plan == [[wire.GivenStage("id-a", 0, 3), wire.GivenStage("id-b", 3, 4)]]
    write_plan(tmp_path / "plan.json", asked)
    assert read_plan(tmp_path / "plan.json") == asked


class PlansWhatIsAsked:
    """A console that gives every model to one PC, and a stand-by."""

    def __init__(self) -> None:
        self.asked: list[PlanRequest] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def plan(self, asked: PlanRequest) -> Plans:
        self.asked.append(asked)
        stages = [PlannedStage("id-a", "a", "CPU", "auto", 0, 4, 1.0, 1)]
        return Plans("small", [PlannedPipeline(Plan("small", 256, 2, stages, 10.0, 20.0, []), [])], [])


def test_a_plan_that_is_written_down_keeps_all_that_was_asked_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    console = PlansWhatIsAsked()
    monkeypatch.setattr("console.cli_plan.client_of", lambda _: console)
    path = tmp_path / "plan.json"
    asked = ["--context", "512", "--streams", "3", "--numerics", "exact", "--engine", "paged", "--exclude", "ab"]
    assert main(["plan", "small", "--write", str(path), "--standbys", "2", "--hot", "--json", *asked]) == 0
    assert '"small"' in capsys.readouterr().out
    assert read_plan(path) == wire.DeployRequest(
        "small",
        numerics="exact",
        engine="paged",
        context=512,
        streams=3,
        standbys=2,
        standby="hot",
        rules=wire.PlanRules(exclude=["ab"]),
        plan=[[wire.GivenStage("id-a", 0, 4)]],
    )
    assert (console.asked[0].standbys, console.asked[0].standby_kind) == (2, "hot")


PLANNED = (
    *(("--write", "f"), ("--stages", "2"), ("--engine", "paged"), ("--numerics", "exact"), ("--device", "ab")),
    *(("--pipelines", "2"), ("--standbys", "1"), ("--hot",), ("--exclude", "ab"), ("--pin", "ab")),
    *(("--limit", "ab=4GB"), ("--cross", "networks"), ("--least-stay", "20"), ("--rate", "9")),
)
AT_ANOTHER_TIME = (("--at", "9:00"), ("--hours", "2"), ("--certainty", "90"), ("--unknown", "5"))
OF_BOTH = (("--context", "512"), ("--streams", "4"))


@pytest.mark.parametrize(
    ("words", "options"),
    [
        (("what-if",), PLANNED),
        (("check", "plan.json"), (*PLANNED, *AT_ANOTHER_TIME, *OF_BOTH)),
        (("small",), AT_ANOTHER_TIME),
    ],
)
def test_an_option_that_would_do_nothing_is_refused(
    words: tuple[str, ...], options: tuple[tuple[str, ...], ...], capsys: pytest.CaptureFixture[str]
) -> None:
    for option in options:
        assert main(["plan", *words, *option]) == 2, option
        assert f"{option[0]} means nothing" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"{", "is no plan"),
        (b"\xff", "is no plan"),
        (b'{"model": "small"}', "says no plan"),
        (b'{"model": "small", "plan": [[{"device": "a", "first": 0}]]}', "is no plan: Object missing"),
        (b'{"model": "small", "stages": 2, "plan": [[{"device": "a", "first": 0, "last": 4}]]}', "says itself"),
        (b" " * (MOST_BYTES + 1), "larger than any plan"),
        (None, "cannot be read"),
    ],
)
def test_a_file_that_is_no_plan_says_why(tmp_path: Path, content: bytes | None, said: str) -> None:
    path = tmp_path / "plan.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ClientError, match=said):
        read_plan(path)


def test_a_file_goes_with_check_alone_and_a_model_or_a_plan_with_deploy(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (
        ["plan", "check"],
        ["plan", "small", "plan.json"],
        ["deploy"],
        ["deploy", "small", "--plan", "f"],
    ):
        assert main(arguments) == 2
        assert "FILE" in capsys.readouterr().err


VALUES = {
    "engine": "paged", "numerics": "fast", "cache": "auto", "device": "ab", "draft": "lookup", "standby": "warm",
    "exclude": "ab", "pin": "ab", "limit": "ab=4GB", "cross": "none",
}  # fmt: skip


@pytest.mark.parametrize("name", [*ASKED, *RULES])
def test_a_plan_made_by_hand_goes_with_no_other_option_not_even_with_its_default(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    option = f"--{name.replace('_', '-')}"
    assert main(["deploy", "--plan", "f", option, VALUES.get(name, "1")]) == 2
    assert f"leave {option} out" in capsys.readouterr().err
    build_parser().parse_args(["deploy", "small", option, VALUES.get(name, "1")])


def test_every_option_of_deploy_is_part_of_what_is_asked() -> None:
    arguments = [part for name in ASKED for part in (f"--{name.replace('_', '-')}", VALUES.get(name, "3"))]
    asked = request_from(build_parser().parse_args(["deploy", "small", "--rate", "30", *arguments]))
    assert asked == wire.DeployRequest(
        "small", 3, "fast", "paged", 3, 3, ["ab"], "auto", 3, "lookup", 3, "warm", 3.0,
        wire.PlanRules(tokens_per_second=30.0), 3,
    )  # fmt: skip
    assert request_from(build_parser().parse_args(["deploy", "small"])) == wire.DeployRequest("small")
