"""The drill, interrupted at its worst moment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).parents[2]
PROCESSES = 11
"""A console, five agents, two stages of the drilled model and one that nobody touches, two standbys."""


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(os.name == "nt", reason="processes are frozen by signals")
def test_ctrl_c_while_a_pc_is_frozen_leaves_no_process(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.bench", "drill", "--json", "--cases", "freeze-agent/hot/token-2"]
    with (tmp_path / "said.txt").open("wb") as said:
        drill = subprocess.Popen(command, cwd=ROOT, stdout=said, stderr=said)
    try:
        family = frozen_family(drill, tmp_path / "said.txt")
        drill.send_signal(signal.SIGINT)
        drill.wait(60)
    finally:
        drill.kill()
        drill.wait()
    assert len(family) >= PROCESSES
    assert not psutil.wait_procs(family, timeout=5)[1]


def frozen_family(drill: subprocess.Popen[bytes], said: Path) -> list[psutil.Process]:
    """Wait until one of the drill's processes is frozen; returns all of them."""
    while True:
        assert drill.poll() is None, said.read_text()
        family = psutil.Process(drill.pid).children(recursive=True)
        for process in family:
            try:
                if process.status() == psutil.STATUS_STOPPED:
                    return family
            except psutil.NoSuchProcess:
                continue
        time.sleep(0.02)
