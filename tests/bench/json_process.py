"""A process of a benchmark that is asked in lines of JSON: requests to its stdin, one answer to each on its stdout."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


class JsonProcess:
    """Runs a module of the benchmark. It says one line by itself when it is ready."""

    def __init__(self, module: str, arguments: Sequence[str]) -> None:
        self._name = module
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        self._read()

    @property
    def process_id(self) -> int:
        return self._process.pid

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Send a request and wait for its answer. Raises SystemExit when the process ends instead."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return self._read()

    def close(self) -> None:
        """Let the process end and wait for it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(30)
        except BaseException:
            self._process.kill()
            self._process.wait()
            raise
        finally:
            self._process.stdout.close()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._process.wait()
            message = f"{self._name} ended before it answered; the reason is printed above."
            raise SystemExit(message)
        answer: dict[str, Any] = json.loads(line)
        return answer
