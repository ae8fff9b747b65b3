"""An update that is killed, anywhere, leaves a working version, and the next one goes on to the end."""

from __future__ import annotations

import contextlib
import io
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import agent.update.trust  # noqa: F401 - here, once for all forks
from agent.update import launch
from agent.update.layout import Installation
from agent.update.releases import encode_signed
from tests.support import killed_update
from tests.support.releases import ROOT, make_archive, make_installation, make_release

CHANGES = ("replace", "rename", "mkdir", "rmdir", "unlink", "symlink", "chmod")
"""Of the module os: everything by which a name changes. Files that are opened and programs that start count as well."""
KILLED = 9


class Pieces(NamedTuple):
    """What each round begins with."""

    template: Path
    archive: Path
    signed: Path
    root: Path


@pytest.fixture(scope="module")
def pieces(tmp_path_factory: pytest.TempPathFactory) -> Pieces:
    folder = tmp_path_factory.mktemp("pieces")
    make_installation(folder / "template")
    archive, packed = make_archive(folder, "1.1.0", fault="quits")
    signed = folder / "1.1.0.release"
    signed.write_bytes(encode_signed(make_release(packed=packed)))
    root = folder / "root.json"
    root.write_bytes(ROOT)
    return Pieces(folder / "template", archive, signed, root)


def fresh(pieces: Pieces, root: Path) -> Installation:
    shutil.copytree(pieces.template, root, symlinks=True)
    return Installation(root, "fallow-agent")


def version_that_runs(installation: Installation) -> str:
    """Start the program as a desktop does, and ask which version it is."""
    done = subprocess.run([installation.current_program(), "version"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == installation.current()
    return done.stdout.strip()


def update_in_a_fork(installation: Installation, pieces: Pieces, die_at: int) -> bool:
    """Update in a process that is gone just before change number `die_at`; says whether it was."""
    pid = os.fork()
    if pid == 0:
        code = 1
        with contextlib.suppress(BaseException):
            _die_before(die_at)
            launch.LOOK_S = 0.002
            killed_update.update(installation, pieces.archive, pieces.signed.read_bytes(), ROOT)
            code = 0
        os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert code in (0, KILLED), code
    return code == KILLED


def _die_before(number: int) -> None:
    left = [number]

    def counting(change: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **names: Any) -> Any:
            left[0] -= 1
            if left[0] == 0:
                os._exit(KILLED)
            return change(*arguments, **names)

        return call

    for name in CHANGES:
        setattr(os, name, counting(getattr(os, name)))
    io.open = counting(io.open)
    subprocess.Popen = _DyingPopen(counting(subprocess.Popen))  # type: ignore[assignment,misc]


class _DyingPopen:
    """Counts the start of a program as well."""

    def __init__(self, start: Callable[..., Any]) -> None:
        self._start = start

    def __call__(self, *arguments: Any, **names: Any) -> Any:
        return self._start(*arguments, **names)

    def __class_getitem__(cls, _: object) -> type:
        return cls


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a process that dies at a step is a fork")
@pytest.mark.parametrize("stride", [12, pytest.param(1, marks=pytest.mark.slow)])
def test_killed_before_any_single_change_a_version_works_and_the_update_goes_on(
    pieces: Pieces, tmp_path: Path, stride: int
) -> None:
    seen = set[str]()
    die_at, is_killed = 1, True
    while is_killed:
        installation = fresh(pieces, tmp_path / f"{die_at}")
        is_killed = update_in_a_fork(installation, pieces, die_at)
        seen.add(version_that_runs(installation))
        assert not update_in_a_fork(installation, pieces, 0)
        assert version_that_runs(installation) == "1.1.0"
        assert [path.name for path in sorted(installation.versions.iterdir())] == ["1.0.0", "1.1.0"]
        shutil.rmtree(installation.root)
        die_at += stride
    assert seen == {"1.0.0", "1.1.0"}
    assert die_at > 60, "the changes of an update are not counted any more"


def killed_at_random(pieces: Pieces, root: Path, chance: random.Random) -> list[str]:
    """Update in a process that is killed again and again until an update came through; returns what ran after each."""
    installation = fresh(pieces, root)
    command = [sys.executable, "-m", killed_update.__name__, *map(os.fspath, (root, *pieces[1:]))]
    ran: list[str] = []
    while not ran or ran[-1] != "1.1.0":
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(chance.uniform(0.1, 1.0) * (1 + len(ran) / 4))
            process.send_signal(signal.SIGKILL)
        assert process.returncode in (0, -signal.SIGKILL)
        ran.append(version_that_runs(installation))
    return ran


def test_a_real_process_killed_at_random_moments_leaves_a_working_version(pieces: Pieces, tmp_path: Path) -> None:
    assert set(killed_at_random(pieces, tmp_path / "fallow", random.Random(9))) <= {"1.0.0", "1.1.0"}


@pytest.mark.slow
def test_a_hundred_real_kills_leave_a_working_version(pieces: Pieces, tmp_path: Path) -> None:
    chance, kills, round_ = random.Random(time.time_ns()), 0, 0
    while kills < 100:
        round_ += 1
        kills += len(killed_at_random(pieces, tmp_path / f"{round_}", chance))
