"""An exporter that only plays: the command line, events and journal of `fallow-export`, in no time.

Run as `python played_exporter.py STAGE build|evaluate|families ...`; `tests.support.builds` has the folder STAGE and
what is in it. It imports only what starts at once. It works on a layer when the file `layers` holds a larger number
than the layer's index, fails with the text of `fail`, ends with the number in `exit_code`, and its library is a copy of
the folder `library`.
"""

from __future__ import annotations

import json
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

PATIENCE_S = 120.0
FAMILIES = {"exported": [{"name": "llama"}], "refused": {"mamba": "its layers keep no keys."}}
EVALUATION = {
    "model_id": "toy", "layer_mode": "int4_gptq", "layer_bits_per_weight": 5.01, "library_bytes": 1, "positions": 769,
    "top1_agreement": 0.83, "mean_kl": 0.1, "source_perplexity": 22.67, "library_perplexity": 23.1,
}  # fmt: skip


class Player:
    """One build."""

    def __init__(self, stage: Path) -> None:
        self._stage = stage
        self._stopped = False

    def build(self, source: Path, out: Path) -> int:
        signal.signal(signal.SIGINT, lambda *_: setattr(self, "_stopped", True))
        layers = int(self._read("count"))
        work = out.parent / f".{out.name}.partial"
        journal = work / "journal" / "journal.jsonl"
        journal.parent.mkdir(parents=True, exist_ok=True)
        finished = max(0, journal.read_bytes().count(b"\n") - 2) if journal.exists() else 0
        if not finished:
            journal.write_bytes(b"key\nembed\n")
        self._say(
            "started", model_id=source.name, family="llama", layer_count=layers, estimated_bytes=4000,
            estimated_memory_bytes=1_000_000, estimated_seconds=8.0, finished_layers=finished, notes=["Played."],
        )  # fmt: skip
        for index in range(finished, layers):
            self._wait_for(index + 1)
            if sentence := self._read("fail"):
                return self._fail("DiskFull", sentence, 6)
            if self._stopped:
                return self._fail("BuildCancelled", "The build was stopped.", 130)
            with journal.open("ab") as file:
                file.write(b"layer\n")
            self._say(
                "layer", index=index, layer_count=layers, seconds=0.5, eta_s=0.5 * (layers - index - 1),
                fp32_error=1e-6, compressed_error=1e-2,
            )  # fmt: skip
        shutil.copytree(self._stage / "library", out, dirs_exist_ok=True)
        shutil.rmtree(work)
        self._say(
            "published", folder=str(out), library_digest=self._read("digest"), size_bytes=4321, seconds=2.0,
            top1_agreement=0.831, mean_kl=0.104,
        )  # fmt: skip
        return int(self._read("exit_code") or 0)

    def _fail(self, error: str, message: str, exit_code: int) -> int:
        self._say("failed", error=error, message=message, exit_code=exit_code)
        print(message, file=sys.stderr)
        return exit_code

    def _wait_for(self, layers: int) -> None:
        until_s = time.monotonic() + PATIENCE_S
        while int(self._read("layers") or 0) < layers and time.monotonic() < until_s:
            if self._stopped or self._read("fail"):
                return
            time.sleep(0.01)

    def _read(self, name: str) -> str:
        path = self._stage / name
        return path.read_text() if path.exists() else ""

    def _say(self, kind: str, **fields: Any) -> None:
        print(json.dumps({"type": kind, **fields}), flush=True)


def main(arguments: Sequence[str]) -> int:
    stage, what, *rest = arguments
    with (Path(stage) / "runs").open("a") as file:
        file.write(json.dumps([what, *rest]) + "\n")
    if what == "build":
        return Player(Path(stage)).build(Path(rest[0]), Path(rest[1]))
    print(json.dumps(FAMILIES if what == "families" else EVALUATION))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
