"""console.builds.exporter: what is left of a service that was killed."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from console.builds.exporter import end_leftover, started_of

NOTHING_TO_DO = (sys.executable, "-c", "import sys; sys.stdin.read()")


@pytest.mark.skipif(sys.platform == "win32", reason="exit codes of signals are of POSIX systems")
def test_a_leftover_is_ended_and_its_exit_code_is_left_to_its_parent() -> None:
    with subprocess.Popen(NOTHING_TO_DO, stdin=subprocess.PIPE) as child:
        end_leftover(child.pid, started_of(child.pid))
        assert child.wait() == -signal.SIGKILL


def test_another_process_with_the_number_of_a_leftover_goes_on() -> None:
    with subprocess.Popen(NOTHING_TO_DO, stdin=subprocess.PIPE) as child:
        end_leftover(child.pid, started_of(child.pid) - 60.0)
        child.communicate(b"")
        assert child.returncode == 0


def test_a_leftover_that_ended_long_ago_is_no_fault() -> None:
    with subprocess.Popen(NOTHING_TO_DO, stdin=subprocess.PIPE) as child:
        child.communicate(b"")
    assert started_of(child.pid) == 0.0
    end_leftover(child.pid, 1.0)
    end_leftover(0, 0.0)
