"""Child processes of the installer end when they should, and are ended when they must."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from installer.children import run_captured, run_child
from tests.support.patience import PATIENCE_S

ROOT = Path(__file__).resolve().parents[3]
posix_only = pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")

# A bootstrap whose work is one child; the child says when it is ready, then waits for good.
PARENT = """
import signal, sys
from pathlib import Path
from installer import bootstrap, children

children.INTERRUPT_GRACE_S = children.TERMINATE_GRACE_S = float(sys.argv[2])
bootstrap.run = lambda _: children.run_child([sys.executable, "-c", sys.argv[1]], Path.cwd())
signal.signal(signal.SIGTERM, bootstrap.stop_on_termination)
sys.exit(bootstrap.main([]))
"""
POLITE = """
import os, time
try:
    print(os.getpid(), flush=True)
    time.sleep(600)
except KeyboardInterrupt:
    print("cleaned up", flush=True)
"""
STUBBORN = """
import os, signal, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(os.getpid(), flush=True)
time.sleep(600)
"""


def python(source: str) -> list[str]:
    return [sys.executable, "-c", source]


def test_the_exit_code_comes_back() -> None:
    assert run_child(python("raise SystemExit(5)"), ROOT) == 5


@posix_only
def test_a_child_ended_by_a_signal_gives_the_code_a_shell_would() -> None:
    assert run_child(python("import os, signal; os.kill(os.getpid(), signal.SIGKILL)"), ROOT) == 128 + signal.SIGKILL


def test_what_a_quiet_child_says_is_kept_and_shown_only_if_it_fails(capfd: pytest.CaptureFixture[str]) -> None:
    speak = "import sys; print('to stdout'); print('to stderr', file=sys.stderr); "
    assert run_captured(python(speak), ROOT)[0] == 0
    assert capfd.readouterr() == ("", "")
    code, tail = run_captured(python(speak + "raise SystemExit(3)"), ROOT)
    assert code == 3
    assert {"to stdout", "to stderr"} == set(tail.split("\n")) - {""}
    out, err = capfd.readouterr()
    assert out == ""
    assert "to stderr" in err


def test_a_child_that_cannot_start_says_so() -> None:
    with pytest.raises(FileNotFoundError):
        run_captured(["no-such-program-anywhere"], ROOT)


@posix_only
@pytest.mark.parametrize(("child", "grace_s"), [(POLITE, PATIENCE_S), (STUBBORN, 0.5)], ids=["polite", "stubborn"])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stop_ends_the_child_first(child: str, grace_s: float, number: signal.Signals, code: int) -> None:
    with subprocess.Popen(
        [*python(PARENT), child, str(grace_s)],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.send_signal(number)
        rest, errors = parent.communicate(timeout=PATIENCE_S)
    assert parent.returncode == code, errors
    assert not psutil.pid_exists(pid)
    assert ("cleaned up" in rest) == (child is POLITE)


@posix_only
def test_a_stopped_install_takes_its_grandchildren_along(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    os.mkfifo(ready)
    grandchild = f"import sys; sys.stdout = open({str(ready)!r}, 'w'){STUBBORN}"
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {grandchild!r}])"
    parent = PARENT.replace("children.run_child", "children.run_captured")
    with (
        subprocess.Popen(
            [*python(parent), child, "0.5"], cwd=ROOT, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE
        ) as process,
        ready.open(encoding="utf-8") as pipe,
    ):
        pipe.readline()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 130, errors
        assert pipe.read() == ""  # which comes when the grandchild has ended, and its end of the pipe with it
