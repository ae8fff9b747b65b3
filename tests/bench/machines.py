"""The client's end of `tests.bench.machine`: a process on one core that generates without any link."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


class Machine:
    """A benchmark process without links (see tests.bench.machine)."""

    def __init__(self, kind: str, folder: Path, core: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.bench.machine", kind, str(folder), str(core)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        self._read()

    @property
    def process_id(self) -> int:
        return self._process.pid

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            message = "A machine of the benchmark ended before it answered; the reason is printed above."
            raise SystemExit(message)
        answer: dict[str, Any] = json.loads(line)
        return answer

    def rate(self, prompt: list[int], tokens: int) -> float:
        """Generate once; returns tokens/s."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"prompt": prompt, "tokens": tokens}) + "\n")
        self._process.stdin.flush()
        return (tokens - 1) / float(self._read()["seconds"])

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)
