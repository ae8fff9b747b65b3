"""`pipeline`: the same library as openvino_genai, as our engine, served by one PC, by two, and by two replicas.

All in one run. Each "machine" computes with one thread on one core; its I/O, the console and the client use whatever is
left. Rounds interleave the measures, so that a noisy minute hits all of them; every figure is the median over the
rounds. A rate counts tokens after the first one of a stream, and of several only while all of them are past their
prompts and none has ended, so prompt processing is left out everywhere. Numerics: `fast`. What speculates is asked to
correct texts, and is compared with openvino_genai doing the same. How well guesses go depends on the text far more than
on anything else, so there every round asks for all of the corrections.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from console.bench.texts import EDIT_PROMPTS
from console.pipeline.tokens import ModelTokenizer
from installer.demo import demo_library
from installer.loopback import LoopbackFleet
from shard_export.library.store import load_manifest
from tests.bench import interference, traffic
from tests.bench.json_process import ROOT
from tests.bench.machines import Machine
from tests.bench.prompts import edits, numbered, questions
from tests.bench.served import at_once, decode_rate, latencies, listen, rate
from tests.bench.two_pcs import CONTEXT_TOKENS, MOST_STREAMS, deploy, peak_memory_mb, pipeline, two_pcs

Say = Callable[[str], None]
Prompts = Callable[[int, int], list[str]]
SPLIT, GUESSING, WHOLE, OTHER, WHOLE_GUESSING = "split", "split-guessing", "whole", "whole-other", "whole-guessing"
PLAIN = {"context": CONTEXT_TOKENS, "streams": 8, "draft": "none"}
LOOKUP = {"context": 1024, "streams": 2, "draft": "lookup"}
WANTED: dict[str, dict[str, Any]] = {
    SPLIT: {**PLAIN, "stages": 2, "streams": MOST_STREAMS},
    GUESSING: {**LOOKUP, "stages": 2},
    WHOLE: {**PLAIN, "stages": 1, "pcs": ["pc-0"]},
    OTHER: {**PLAIN, "stages": 1, "pcs": ["pc-1"], "context": 1024},
    WHOLE_GUESSING: {**LOOKUP, "stages": 1, "pcs": ["pc-0"]},
}
DIRECT: dict[str, dict[str, Any]] = {SPLIT: {**PLAIN, "stages": 2, "context": 1024}}
SPECULATIVE = ("one_machine_speculative", "two_stage_2_speculative")


def run(*, rounds: int, tokens: int, say: Say) -> dict[str, Any]:
    """Measure everything; see the README of this folder for what the keys mean."""
    if importlib.util.find_spec("openvino_genai") is None:
        command = "python installer/bootstrap.py setup --extras console,demo,dev,export"
        raise SystemExit(f"The baseline openvino_genai is not installed; run: {command}")
    library = demo_library(ROOT / ".fallow" / "demo", say)
    cores = sorted(os.sched_getaffinity(0))[:2]
    with tempfile.TemporaryDirectory(prefix="fallow-bench-") as name:
        root = Path(name)
        assembled = _assembled(library, root / "assembled")
        pcs = two_pcs(cores)
        with (
            LoopbackFleet(root / "fleet", pcs) as fleet,
            LoopbackFleet(root / "direct", pcs, direct_links=True) as direct,
        ):
            deploy(fleet, library, root / "libraries", WANTED)
            deploy(direct, library, root / "direct-libraries", DIRECT)
            machines = {
                kind: Machine(kind, folder, cores[0]) for kind, folder in (("genai", assembled), ("engine", library))
            }
            try:
                found = Bench(fleet, direct, machines, library, tokens, say).run(rounds)
            finally:
                for machine in machines.values():
                    machine.close()
        return found | {"wire_bytes_per_token": traffic.measure(library, root, cores, say)}


class Bench:
    """The measures of one run over a fleet in which everything is deployed."""

    def __init__(
        self,
        fleet: LoopbackFleet,
        direct: LoopbackFleet,
        machines: dict[str, Machine],
        library: Path,
        tokens: int,
        say: Say,
    ) -> None:
        """`direct` is another fleet of the same PCs, whose stages talk to each other without the console."""
        self._fleet, self._direct, self._machines, self._tokens, self._say = fleet, direct, machines, tokens, say
        self._tokenizer = ModelTokenizer.load(library, load_manifest(library))
        self._numbers = itertools.count(1)
        self._overheads: dict[LoopbackFleet, list[float]] = {fleet: [], direct: []}

    def run(self, rounds: int) -> dict[str, Any]:
        """Take every rate `rounds` times after a warm-up, then what people feel, then memory."""
        measures = self._measures()
        rates: dict[str, list[float]] = {name: [] for name in measures}
        for round_ in range(rounds + 1):
            for name, measure in measures.items():
                found = measure(round_)
                self._say(f"round {round_}{' (warm-up)' if round_ == 0 else ''}: {name} {found:.1f} tokens/s")
                if round_:
                    rates[name].append(found)
        medians = {name: statistics.median(values) for name, values in rates.items()}
        base = {name: medians["genai_edit" if name in SPECULATIVE else "genai"] for name in medians}
        return {
            **{name: round(value, 2) for name, value in medians.items()},
            "ratios": {name: round(value / base[name], 3) for name, value in medians.items()},
            "hop_overhead_ms": round(statistics.median(self._overheads[self._fleet][1:]), 3),
            "hop_overhead_direct_ms": round(statistics.median(self._overheads[self._direct][1:]), 3),
            "speculation": {
                name: msgspec.to_builtins(pipeline(self._fleet, name).speculation)
                for name in (GUESSING, WHOLE_GUESSING)
            },
            "latency": self._latencies(rounds),
            "long_prompt": self._long_prompts(rounds),
            "peak_memory_mb": peak_memory_mb(self._fleet),
            "numerics": "fast",
            "rounds": rounds,
            "tokens": self._tokens,
            "stages": [[stage.first, stage.last] for stage in pipeline(self._fleet, SPLIT).stages],
        }

    def _measures(self) -> dict[str, Callable[[int], float]]:
        return {
            "genai": partial(self._alone, "genai", questions),
            "genai_edit": partial(self._alone, "genai", edits, groups=len(EDIT_PROMPTS)),
            "one_stage": partial(self._alone, "engine", questions),
            "served_1": partial(self._served, [WHOLE], questions, 1),
            "served_8": partial(self._served, [WHOLE], questions, 8),
            "one_machine_speculative": partial(self._served, [WHOLE_GUESSING], edits, 1, groups=len(EDIT_PROMPTS)),
            "two_stage_1": partial(self._two_stage_1, self._fleet),
            "two_stage_1_direct": partial(self._two_stage_1, self._direct),
            "two_stage_2": partial(self._served, [SPLIT], questions, 2),
            "two_stage_8": partial(self._served, [SPLIT], questions, 8),
            "two_stage_16": partial(self._served, [SPLIT], questions, 16),
            "two_stage_2_speculative": partial(self._served, [GUESSING], edits, 2, groups=len(EDIT_PROMPTS) // 2),
            "two_replicas": partial(self._served, [WHOLE, OTHER], questions, 2),
            "two_replicas_8": partial(self._served, [WHOLE, OTHER], questions, 8),
        }

    def _alone(self, kind: str, prompts: Prompts, round_: int, *, groups: int = 1) -> float:
        asked = numbered(prompts(groups, round_), self._numbers)
        ids = [self._tokenizer.encode_chat([{"role": "user", "content": prompt}]) for prompt in asked]
        return statistics.harmonic_mean([self._machines[kind].rate(one, self._tokens) for one in ids])

    def _served(self, models: list[str], prompts: Prompts, streams: int, round_: int, *, groups: int = 1) -> float:
        """Ask `streams` prompts at once, `groups` times over; tokens are equal in number, so the mean is harmonic."""
        asked = iter(numbered(prompts(groups * streams, round_), self._numbers))
        together = [list(itertools.islice(asked, streams)) for _ in range(groups)]
        return statistics.harmonic_mean([self._together(models, group) for group in together])

    def _together(self, models: list[str], prompts: list[str]) -> float:
        if len(prompts) == 1:
            return rate(self._fleet, models, prompts, self._tokens)
        asked = zip(itertools.cycle(models), prompts, strict=False)
        return decode_rate(
            at_once([partial(listen, self._fleet, model, prompt, self._tokens) for model, prompt in asked])
        )

    def _two_stage_1(self, fleet: LoopbackFleet, round_: int) -> float:
        found = rate(fleet, [SPLIT], numbered(questions(1, round_), self._numbers), self._tokens)
        self._overheads[fleet].append(pipeline(fleet, SPLIT).overhead_ms)
        return found

    def _latencies(self, rounds: int) -> dict[str, Any]:
        cases = {"served_1": (WHOLE, 1), "two_stage_1": (SPLIT, 1), "two_stage_8": (SPLIT, 8)}
        found = {}
        for name, (model, streams) in cases.items():
            heard = []
            for round_ in range(rounds):
                prompts = numbered(questions(streams, round_), self._numbers)
                heard += at_once([partial(listen, self._fleet, model, prompt, self._tokens) for prompt in prompts])
            found[name] = latencies(heard)
            self._say(f"{name}: {found[name]}")
        return found

    def _long_prompts(self, rounds: int) -> dict[str, Any]:
        found = {}
        for name, model in (("served", WHOLE), ("two_stage", SPLIT)):
            seen = [
                interference.measure(self._fleet, model, self._count, 10 * round_ + (model == SPLIT)).figures()
                for round_ in range(rounds)
            ]
            found[name] = {key: statistics.median(one[key] for one in seen) for key in seen[0]}
            self._say(f"a long prompt beside a running answer, {name}: {found[name]}")
        return found

    def _count(self, text: str) -> int:
        return len(self._tokenizer.encode_chat([{"role": "user", "content": text}]))


def _assembled(library: Path, out: Path) -> Path:
    subprocess.run([sys.executable, "-m", "shard_export", "assemble", str(library), str(out)], check=True, cwd=ROOT)
    return out
