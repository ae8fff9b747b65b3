"""The client's end of `tests.bench.machine`: a process on one core that generates without any link."""

from __future__ import annotations

from pathlib import Path

from tests.bench.json_process import JsonProcess


class Machine:
    """A benchmark process without links (see tests.bench.machine)."""

    def __init__(self, kind: str, folder: Path, core: int) -> None:
        self._process = JsonProcess("tests.bench.machine", [kind, str(folder), str(core)])

    @property
    def process_id(self) -> int:
        return self._process.process_id

    def rate(self, prompt: list[int], tokens: int) -> float:
        """Generate once; returns tokens/s."""
        answer = self._process.ask({"prompt": prompt, "tokens": tokens})
        return (tokens - 1) / float(answer["seconds"])

    def close(self) -> None:
        self._process.close()
