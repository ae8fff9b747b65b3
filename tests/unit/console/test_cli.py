from __future__ import annotations

import pytest

from console.cli import warn_of_password


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
