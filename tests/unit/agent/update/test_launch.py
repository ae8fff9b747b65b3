"""agent.update.launch: a real program is tried by the one that worked so far."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agent.update.keeping import read_progress, write_progress
from agent.update.launch import begin
from agent.update.layout import Installation
from agent.update.progress import Progress, moved, taken
from agent.update.releases import Release
from tests.support.patience import PATIENCE_S
from tests.support.releases import describe, make_installation, make_tree, versions_in

LAUNCH = """
import sys
from pathlib import Path
from agent.update.launch import begin
from agent.update.layout import Installation
code = begin(Installation(Path(sys.argv[1]), "fallow-agent"), ["run"], float(sys.argv[2]))
print("old" if code is None else f"ended {code}", flush=True)
"""


def make_wanted(root: Path, *, fault: str = "", reports: str = "") -> Installation:
    """An installation of 1.0.0 in which 1.1.0 is to be tried."""
    installation = make_installation(root)
    make_tree(installation.folder("1.1.0"), "1.1.0", fault=fault, reports=reports)
    now_s = time.time()
    release = Release(describe(), "archive", 1000, "ab" * 32, 10, now_s + 1e6)
    write_progress(installation, moved(taken(Progress(), release, "1.0.0", now_s), "wanted", now_s))
    return installation


def launch(installation: Installation, prove_s: float = PATIENCE_S) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", LAUNCH, os.fspath(installation.root), str(prove_s)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_until_current(installation: Installation, version: str) -> None:
    until_s = time.monotonic() + PATIENCE_S
    while read_progress(installation).phase != "done" or installation.current() != version:
        assert time.monotonic() < until_s, read_progress(installation)
        time.sleep(0.02)


def test_a_version_that_proves_itself_becomes_the_current_one(tmp_path: Path) -> None:
    installation = make_wanted(tmp_path)
    make_tree(installation.folder("0.9.0"), "0.9.0")
    launched = launch(installation)
    wait_until_current(installation, "1.1.0")
    launched.send_signal(signal.SIGTERM)
    said, _ = launched.communicate(timeout=PATIENCE_S)
    assert said == f"ended {128 + signal.SIGTERM}\n"
    assert versions_in(installation) == ["1.0.0", "1.1.0"]
    assert not list(installation.work.glob("proof-*"))


def test_its_exit_code_is_passed_on(tmp_path: Path) -> None:
    installation = make_wanted(tmp_path, fault="again")
    launched = launch(installation)
    # It asks to be started again, and what is started is the current version, no trial any more.
    said, _ = launched.communicate(timeout=PATIENCE_S)
    assert (said, launched.returncode) == ("", 0)
    assert installation.current() == "1.1.0"


@pytest.mark.parametrize(
    ("fault", "reports", "why"),
    [
        ("crash", "", "1.1.0 ended with code 3 before it reached the console."),
        ("silent", "", "1.1.0 did not reach the console in 1 s."),
        ("", "9.9.9", "What should be 1.1.0 says it is 9.9.9."),
        ("unfit", "", "1.1.0 does not work on this PC: It has no legs."),
    ],
    ids=["crashes", "silent", "another", "unfit after the switch"],
)
def test_a_version_that_does_not_is_taken_back(
    tmp_path: Path, fault: str, reports: str, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    installation = make_wanted(tmp_path, fault=fault, reports=reports)
    said, _ = launch(installation, 1.0 if fault == "silent" else PATIENCE_S).communicate(timeout=PATIENCE_S)
    assert said == "old\n"
    assert installation.current() == "1.0.0"
    progress = read_progress(installation)
    assert (progress.phase, progress.tries, progress.problem) == ("ready", 1, why)


def test_a_program_that_cannot_be_executed_is_taken_back(tmp_path: Path) -> None:
    installation = make_wanted(tmp_path)
    installation.program("1.1.0").write_bytes(b"\x7fELF nonsense")
    assert launch(installation).communicate(timeout=PATIENCE_S)[0] == "old\n"
    assert "cannot be started" in read_progress(installation).problem


def test_stopping_during_a_trial_ends_both_and_the_trial_does_not_count(tmp_path: Path) -> None:
    installation = make_wanted(tmp_path, fault="silent")
    launched = launch(installation)
    while read_progress(installation).phase != "trying":
        time.sleep(0.02)
    while not list(Path(f"/proc/{launched.pid}/task/{launched.pid}/children").read_text().split()):
        time.sleep(0.02)
    launched.send_signal(signal.SIGTERM)
    said, _ = launched.communicate(timeout=PATIENCE_S)
    assert said.startswith("ended")
    progress = read_progress(installation)
    assert (progress.phase, progress.tries, installation.current()) == ("ready", 0, "1.0.0")


def test_nothing_is_tried_where_nothing_is_wanted(tmp_path: Path) -> None:
    assert begin(make_installation(tmp_path), ["run"]) is None


def test_a_damaged_installation_is_only_logged(tmp_path: Path, expected_logs: pytest.FixtureRequest) -> None:
    expected_logs("agent.update.launch", "Updates cannot go on")  # type: ignore[operator]
    installation = make_installation(tmp_path)
    (tmp_path / "current").unlink()
    assert begin(installation, ["run"]) is None
