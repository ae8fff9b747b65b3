"""The one check command runs its steps in order and stops at the first that fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from installer.check import MOST_CORES, check, steps

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

TODO = [("format", ["a"]), ("types", ["b"]), ("tests", ["c"])]


@pytest.mark.parametrize(("failing", "ran"), [("", "abc"), ("a", "a"), ("b", "ab"), ("c", "abc")])
def test_it_stops_at_the_first_failure_with_its_code(failing: str, ran: str) -> None:
    seen: list[str] = []

    def run(command: Sequence[str], _folder: Path) -> int:
        seen.extend(command)
        return 5 if failing in command else 0

    assert check(TODO, run) == (5 if failing else 0)
    assert "".join(seen) == ran


def test_each_step_says_its_time_but_the_last_leaves_the_end_to_pytest(capsys: pytest.CaptureFixture[str]) -> None:
    times = iter([0.0, 1.5, 10.0, 10.25, 20.0])
    check(TODO, lambda _command, _folder: 0, lambda: next(times))
    assert capsys.readouterr().out.splitlines() == [
        "--- format",
        "--- format: ok in 1.5 s",
        "--- types",
        "--- types: ok in 0.2 s",
        "--- tests",
    ]


def test_arguments_go_to_pytest_which_comes_last() -> None:
    todo = steps(["--slow", "-k", "name"])
    assert [name for name, _ in todo] == ["format", "lint", "types", "layers", "tests"]
    command = todo[-1][1][1:]
    assert command[:3] == ["-m", "pytest", "-n"]
    assert 2 <= int(command[3]) <= MOST_CORES + 1
    assert command[4:-3] == ["--max-worker-restart", "0", "--dist", "loadfile", "--no-loadscope-reorder"]
    assert command[-3:] == ["--slow", "-k", "name"]


def test_a_process_that_dies_fails_the_run_instead_of_holding_it_up(pytester: pytest.Pytester) -> None:
    waits = "import time\ndef test_one(): time.sleep(0.3)\ndef test_two(): pass"
    dies = "import os\ndef test_one(): pass\ndef test_dies(): os.kill(os.getpid(), 9)\ndef test_two(): pass"
    pytester.makepyfile(test_dies=dies, **{f"test_waits_{number}": waits for number in range(6)})
    _, command = steps([])[-1]
    result = pytester.runpytest_subprocess(*command[3:], "-p", "no:asyncio", timeout=120)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["FAILED test_dies.py::test_dies - worker * crashed while running *"])
