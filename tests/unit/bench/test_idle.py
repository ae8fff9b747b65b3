"""tests.bench.idle: whose time and memory are counted."""

from __future__ import annotations

import subprocess
import sys

import psutil

from tests.bench.idle import resident_bytes, used_s

BURN = "import time\nwhile time.process_time() < 0.3: pass\n"
HOLD = "held = b'x' * 50_000_000\nprint(flush=True)\ninput()\n"


def test_the_time_of_a_child_that_has_ended_counts() -> None:
    before_s = used_s(psutil.Process())
    subprocess.run([sys.executable, "-c", BURN], check=True)
    assert used_s(psutil.Process()) - before_s >= 0.25


def test_the_memory_of_a_child_counts_while_it_lives() -> None:
    before = resident_bytes(psutil.Process())
    command = [sys.executable, "-c", HOLD]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert resident_bytes(psutil.Process()) - before >= 50_000_000
