from __future__ import annotations

import pytest

from console.cli import build_parser, warn_of_password
from console.fleet.hub import HEARTBEAT_S


@pytest.mark.parametrize(
    "arguments",
    [
        ["serve", "--database", "postgresql://fallow:canary@db/fallow"],
        ["serve", "--database=postgresql://fallow:canary@db/fallow"],
    ],
)
def test_a_password_in_the_command_line_is_warned_of_and_not_repeated(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    warn_of_password(arguments)
    said = capsys.readouterr().err
    assert "PGPASSWORD" in said
    assert "canary" not in said


def test_addresses_without_one_are_fine(capsys: pytest.CaptureFixture[str]) -> None:
    warn_of_password(["serve", "--database", "postgresql://fallow@db/fallow", "--advertise", "wss://console:8461"])
    assert capsys.readouterr().err == ""


def test_a_heartbeat_is_a_sensible_number_of_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    assert build_parser().parse_args(["serve"]).heartbeat == HEARTBEAT_S
    assert build_parser().parse_args(["serve", "--heartbeat", "5"]).heartbeat == 5.0
    for text in ("0", "-1", "nan", "3600", "soon"):
        with pytest.raises(SystemExit):
            build_parser().parse_args(["serve", f"--heartbeat={text}"])
        assert text in capsys.readouterr().err
