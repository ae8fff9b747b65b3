"""`pipeline`: the same library as openvino_genai, as our engine, served by one machine and by two; all in one run.

Each "machine" computes with one thread on one core; its I/O, the console and the client use whatever is left. Rounds
interleave the measures, so that a noisy minute hits all of them; every figure is the median over the rounds. A rate
counts tokens after the first one of each stream, so prompt processing is left out everywhere. Numerics: `fast`.
"""

from __future__ import annotations

import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from console.api.admin import types as wire
from console.pipeline.tokens import ModelTokenizer
from installer.demo import demo_library
from installer.loopback import AgentSettings, Answer, LoopbackFleet
from shard_export.library.store import load_manifest
from tests.bench.prompts import PROMPTS

Say = Callable[[str], None]
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

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            message = "A machine of the benchmark ended before it answered; the reason is printed above."
            raise SystemExit(message)
        answer: dict[str, Any] = json.loads(line)
        return answer

    def rate(self, prompt: list[int], tokens: int) -> tuple[float, list[int]]:
        """Generate once; returns tokens/s and the ids."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"prompt": prompt, "tokens": tokens}) + "\n")
        self._process.stdin.flush()
        answer = self._read()
        return (tokens - 1) / float(answer["seconds"]), answer["ids"]

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)


def served_rate(fleet: LoopbackFleet, streams: int, tokens: int, offset: int) -> float:
    """Ask `streams` distinct questions at once; returns tokens/s between the first token and the end."""
    prompts = [PROMPTS[(offset + index) % len(PROMPTS)] for index in range(streams)]
    with ThreadPoolExecutor(streams) as pool:
        asked = [
            pool.submit(fleet.chat, prompt, max_tokens=tokens, temperature=0, ignore_eos=True) for prompt in prompts
        ]
        answers = [one.result() for one in asked]
    first_s = min(_first_token_s(answer) for answer in answers)
    return sum(answer.completion_tokens - 1 for answer in answers) / (max(a.finished_s for a in answers) - first_s)


def _first_token_s(answer: Answer) -> float:
    return answer.finished_s - (answer.total_ms - answer.first_token_ms) / 1000


def run(*, rounds: int, tokens: int, say: Say) -> dict[str, Any]:
    """Measure everything; returns rates in tokens/s, their ratios to genai, and `hop_overhead_ms`."""
    if importlib.util.find_spec("openvino_genai") is None:
        command = "python installer/bootstrap.py setup --extras console,demo,dev,export"
        raise SystemExit(f"The baseline openvino_genai is not installed; run: {command}")
    library = demo_library(ROOT / ".fallow" / "demo", say)
    cores = sorted(os.sched_getaffinity(0))[:2]
    with tempfile.TemporaryDirectory(prefix="fallow-bench-") as name:
        root = Path(name)
        assembled = _assembled(library, root / "assembled")
        one = LoopbackFleet(root / "one", [AgentSettings("one", 1, cores[:1])])
        two = LoopbackFleet(root / "two", [AgentSettings(f"pc-{core}", 1, [core]) for core in cores])
        with one, two:
            for fleet, stages in ((one, 1), (two, 2)):
                model = fleet.admin.add_library(library).model_id
                fleet.deploy(wire.DeployRequest(model=model, stages=stages))
            machines = {
                kind: Machine(kind, folder, cores[0]) for kind, folder in (("genai", assembled), ("engine", library))
            }
            try:
                return _measure(machines, one, two, library, rounds, tokens, say)
            finally:
                for machine in machines.values():
                    machine.close()


def _measure(
    machines: dict[str, Machine],
    one: LoopbackFleet,
    two: LoopbackFleet,
    library: Path,
    rounds: int,
    tokens: int,
    say: Say,
) -> dict[str, Any]:
    tokenizer = ModelTokenizer.load(library, load_manifest(library))
    prompts = [tokenizer.encode_chat([{"role": "user", "content": prompt}]) for prompt in PROMPTS]
    overheads: list[float] = []

    def two_stage_1(round_: int) -> float:
        rate = served_rate(two, 1, tokens, round_)
        overheads.append(two.admin.status().pipelines[0].overhead_ms)
        return rate

    measures: dict[str, Callable[[int], float]] = {
        "genai": lambda n: machines["genai"].rate(prompts[n % len(prompts)], tokens)[0],
        "one_stage": lambda n: machines["engine"].rate(prompts[n % len(prompts)], tokens)[0],
        "served_1": lambda n: served_rate(one, 1, tokens, n),
        "served_8": lambda n: served_rate(one, 8, tokens, n),
        "two_stage_1": two_stage_1,
        "two_stage_2": lambda n: served_rate(two, 2, tokens, n),
        "two_stage_8": lambda n: served_rate(two, 8, tokens, n),
    }
    rates: dict[str, list[float]] = {name: [] for name in measures}
    for round_ in range(rounds + 1):
        for name, measure in measures.items():
            rate = measure(round_)
            say(f"round {round_}{' (warm-up)' if round_ == 0 else ''}: {name} {rate:.1f} tokens/s")
            if round_:
                rates[name].append(rate)
    medians = {name: statistics.median(values) for name, values in rates.items()}
    return {
        **{name: round(value, 2) for name, value in medians.items()},
        "ratios": {name: round(value / medians["genai"], 3) for name, value in medians.items()},
        "hop_overhead_ms": round(statistics.median(overheads[1:]), 3),
        "numerics": "fast",
        "rounds": rounds,
        "tokens": tokens,
        "stages": [[stage.first, stage.last] for stage in two.admin.status().pipelines[0].stages],
    }


def _assembled(library: Path, out: Path) -> Path:
    subprocess.run([sys.executable, "-m", "shard_export", "assemble", str(library), str(out)], check=True, cwd=ROOT)
    return out
