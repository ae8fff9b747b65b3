"""console.builds.exporter: which program it is, and what is left of a service that was killed."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from console.builds.exporter import INSTALL_BESIDE, Exporter, end_leftover, started_of

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


@pytest.mark.skipif(sys.platform == "win32", reason="a script as a program")
async def test_a_console_without_a_python_takes_the_exporter_on_its_path_once_it_is_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    exporter = Exporter(gentle=False)
    assert exporter.missing == INSTALL_BESIDE
    assert (await exporter.families()).exported == []
    program = tmp_path / "fallow-export"
    program.write_text("""#!/bin/sh\necho '{"exported": [{"name": "toy"}], "refused": {}}'\n""")
    program.chmod(0o755)
    assert exporter.missing == ""
    assert [family.name for family in (await exporter.families()).exported] == ["toy"]
