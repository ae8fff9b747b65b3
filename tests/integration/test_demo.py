"""The demo as people run it, on the shared library of the tests."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_demo_answers_three_questions_on_two_pcs(smollm2_library: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "installer.demo", "--json", "--library", str(smollm2_library)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert len(result["answers"]) == 3
    assert "Paris" in result["answers"][0]
    first, second = result["stages"]
    assert first["first"] == 0
    assert first["last"] == second["first"]
    assert second["last"] == 30
    assert first["agent"] != second["agent"]
    assert first["fused"]
    assert second["fused"]
    assert first["ms_per_token"] > 0
    assert second["ms_per_token"] > 0
    assert result["tokens_per_second"] > 0
    assert result["seconds"] > 0
