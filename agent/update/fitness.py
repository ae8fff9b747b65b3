"""Whether a version works on this PC: it starts, is the version it should be, and finds what it needs. Blocking."""

from __future__ import annotations

import subprocess
from pathlib import Path

import msgspec

from agent.children import NO_WINDOW
from agent.update.errors import VersionUnfit

SELF_TEST = "self-test"
SELF_TEST_S = 120.0
MAX_ANSWER_BYTES = 64 * 1024


class SelfTest(msgspec.Struct, frozen=True):
    """What `fallow-agent self-test` prints. `problems` are sentences; none: it works here."""

    version: str
    problems: list[str] = []


def examine(program: Path, version: str, within_s: float = SELF_TEST_S) -> None:
    """Let a program examine itself. Raises VersionUnfit."""
    try:
        done = subprocess.run(
            [program, SELF_TEST],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            creationflags=NO_WINDOW,
            timeout=within_s,
            check=False,
        )
        answer = msgspec.json.decode(done.stdout[:MAX_ANSWER_BYTES], type=SelfTest)
    except subprocess.TimeoutExpired:
        raise VersionUnfit(f"{version} did not finish its self-test in {within_s:.0f} s on this PC.") from None
    except OSError as error:
        raise VersionUnfit(f"{version} cannot be started on this PC ({error.strerror}).") from None
    except msgspec.MsgspecError:
        raise VersionUnfit(f"{version} ended with code {done.returncode} instead of its self-test.") from None
    if answer.problems:
        raise VersionUnfit(f"{version} does not work on this PC: {answer.problems[0][:200]}")
    if answer.version != version:
        raise VersionUnfit(f"What should be {version} says it is {answer.version[:40]}; build the release again.")
