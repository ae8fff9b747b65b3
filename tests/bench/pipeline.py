"""`pipeline`: the same library as openvino_genai, as our engine, served by one PC, by two, and by two replicas.

All in one run. Each "machine" computes with one thread on one core; its I/O, the console and the client use whatever
is left. Scene by scene a fleet holds what is measured and nothing else, as PCs do that serve one model: the pulse of
others beside it costs a tenth of two cores. Rounds interleave a scene's measures with its baseline, so that a noisy
minute hits both; every figure is the median over the rounds. A rate counts tokens after the first one of a stream, and
of several only while all of them are past their prompts and none has ended, so prompt processing is left out
everywhere. Numerics: `fast`. What speculates is asked to correct texts, and is compared with openvino_genai doing the
same. How well guesses go depends on the text far more than on anything else, so there every round asks for all of the
corrections.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from console.bench.texts import EDIT_PROMPTS
from console.pipeline.tokens import ModelTokenizer
from installer.demo import demo_library
from installer.loopback import AgentSettings, LoopbackFleet
from shard_export.library.store import load_manifest
from tests.bench import interference, traffic
from tests.bench.json_process import ROOT
from tests.bench.machines import Machine
from tests.bench.prompts import edits, numbered, questions
from tests.bench.served import at_once, decode_rate, latencies, listen, rate
from tests.bench.two_pcs import CONTEXT_TOKENS, MOST_STREAMS, deploy, peak_memory_mb, pipeline, two_pcs

Say = Callable[[str], None]
Prompts = Callable[[int, int], list[str]]
SPLIT, WHOLE, OTHER = "split", "whole", "whole-other"
PLAIN = {"context": CONTEXT_TOKENS, "streams": 8, "draft": "none"}
LOOKUP = {"context": 1024, "streams": 2, "draft": "lookup"}


class Row(NamedTuple):
    """One measure: so many prompts at once, to the models in turn, `groups` times a round."""

    models: tuple[str, ...]
    streams: int
    prompts: Prompts = questions
    groups: int = 1


class Scene(NamedTuple):
    """What is deployed, by name, what is measured then, and which of the two baselines that is compared with."""

    wanted: dict[str, dict[str, Any]]
    rows: dict[str, Row]
    baseline: Row = Row((), 1)
    direct_links: bool = False


EDITING = Row((), 1, edits, len(EDIT_PROMPTS))
SCENES = {
    "served": Scene(
        {WHOLE: {**PLAIN, "stages": 1, "pcs": ["pc-0"]}}, {"served_1": Row((WHOLE,), 1), "served_8": Row((WHOLE,), 8)}
    ),
    "two_stage": Scene(
        {SPLIT: {**PLAIN, "stages": 2, "streams": MOST_STREAMS}},
        {f"two_stage_{streams}": Row((SPLIT,), streams) for streams in (1, 2, 8, 16)},
    ),
    "two_stage_direct": Scene(
        {SPLIT: {**PLAIN, "stages": 2, "context": 1024}}, {"two_stage_1_direct": Row((SPLIT,), 1)}, direct_links=True
    ),
    "speculative": Scene(
        {WHOLE: {**LOOKUP, "stages": 1, "pcs": ["pc-0"]}},
        {"one_machine_speculative": Row((WHOLE,), 1, edits, len(EDIT_PROMPTS))},
        EDITING,
    ),
    "two_stage_speculative": Scene(
        {SPLIT: {**LOOKUP, "stages": 2}},
        {"two_stage_2_speculative": Row((SPLIT,), 2, edits, len(EDIT_PROMPTS) // 2)},
        EDITING,
    ),
    "replicas": Scene(
        {
            WHOLE: {**PLAIN, "stages": 1, "pcs": ["pc-0"]},
            OTHER: {**PLAIN, "stages": 1, "pcs": ["pc-1"], "context": 1024},
        },
        {"two_replicas": Row((WHOLE, OTHER), 2), "two_replicas_8": Row((WHOLE, OTHER), 8)},
    ),
}


def run(*, rounds: int, tokens: int, say: Say) -> dict[str, Any]:
    """Play every scene; see the README of this folder for what the keys mean."""
    if importlib.util.find_spec("openvino_genai") is None:
        command = "python installer/bootstrap.py setup --extras console,demo,dev,export"
        raise SystemExit(f"The baseline openvino_genai is not installed; run: {command}")
    library = demo_library(ROOT / ".fallow" / "demo", say)
    cores = sorted(os.sched_getaffinity(0))[:2]
    with tempfile.TemporaryDirectory(prefix="fallow-bench-") as name:
        root = Path(name)
        assembled = _assembled(library, root / "assembled")
        kinds = {"genai": assembled, "engine": library}
        machines = {kind: Machine(kind, folder, cores[0]) for kind, folder in kinds.items()}
        try:
            bench = Bench(machines, library, tokens, say)
            for scene in SCENES:
                bench.play(scene, root / scene, two_pcs(cores), rounds)
        finally:
            for machine in machines.values():
                machine.close()
        return bench.found() | {"rounds": rounds, "wire_bytes_per_token": traffic.measure(library, root, cores, say)}


class Bench:
    """The measures of one run, scene by scene."""

    def __init__(self, machines: dict[str, Machine], library: Path, tokens: int, say: Say) -> None:
        self._machines, self._library, self._tokens, self._say = machines, library, tokens, say
        self._tokenizer = ModelTokenizer.load(library, load_manifest(library))
        self._numbers = itertools.count(1)
        self._alone: dict[str, list[float]] = {"genai": [], "genai_edit": [], "one_stage": []}
        self._rates: dict[str, float] = {}
        self._ratios: dict[str, float] = {}
        self._more: dict[str, dict[str, Any]] = {
            key: {} for key in ("overhead_ms", "speculation", "latency", "long_prompt", "peak_memory_mb", "stages")
        }

    def play(self, name: str, folder: Path, pcs: Sequence[AgentSettings], rounds: int) -> None:
        """Take every rate of a scene `rounds` times after a warm-up, then what people feel, then memory."""
        scene = SCENES[name]
        with LoopbackFleet(folder / "fleet", pcs, direct_links=scene.direct_links) as fleet:
            deploy(fleet, self._library, folder / "libraries", scene.wanted)
            self._compare(name, scene, fleet, rounds)
            if scene.baseline is not EDITING and not scene.direct_links and len(scene.wanted) == 1:
                self._feel(name, scene, fleet, rounds)
            first = pipeline(fleet, next(iter(scene.wanted)))
            self._more["speculation"][name] = msgspec.to_builtins(first.speculation)
            self._more["stages"][name] = [[stage.first, stage.last] for stage in first.stages]
            self._more["peak_memory_mb"][name] = peak_memory_mb(fleet)

    def found(self) -> dict[str, Any]:
        """Return what was measured; see the README of this folder for what the keys mean."""
        alone = {name: statistics.median(values) for name, values in self._alone.items()}
        overheads, speculative = self._more["overhead_ms"], ("speculative", "two_stage_speculative")
        return {
            **{name: round(value, 2) for name, value in (alone | self._rates).items()},
            "ratios": {name: round(value, 3) for name, value in self._ratios.items()},
            "hop_overhead_ms": overheads["two_stage"],
            "hop_overhead_direct_ms": overheads["two_stage_direct"],
            "speculation": {name: self._more["speculation"][name] for name in speculative},
            **{name: self._more[name] for name in ("latency", "long_prompt", "peak_memory_mb")},
            "numerics": "fast",
            "tokens": self._tokens,
            "stages": self._more["stages"]["two_stage"],
        }

    def _compare(self, name: str, scene: Scene, fleet: LoopbackFleet, rounds: int) -> None:
        baseline = "genai_edit" if scene.baseline is EDITING else "genai"
        rates: dict[str, list[float]] = {baseline: [], **({"one_stage": []} if name == "served" else {})}
        rates |= {row: [] for row in scene.rows}
        overheads = []
        for round_ in range(rounds + 1):
            for row, values in rates.items():
                if row in scene.rows:
                    found = self._served(fleet, scene.rows[row], round_)
                else:
                    found = self._without_links("engine" if row == "one_stage" else "genai", scene.baseline, round_)
                self._say(f"round {round_}{' (warm-up)' if round_ == 0 else ''}: {row} {found:.1f} tokens/s")
                if round_:
                    values.append(found)
                    if row in ("two_stage_1", "two_stage_1_direct"):
                        overheads.append(pipeline(fleet, SPLIT).overhead_ms)
        if overheads:
            self._more["overhead_ms"][name] = round(statistics.median(overheads), 3)
        medians = {row: statistics.median(values) for row, values in rates.items()}
        self._ratios |= {row: value / medians[baseline] for row, value in medians.items()}
        self._rates |= {row: medians[row] for row in scene.rows}
        for row in rates.keys() - scene.rows.keys():
            self._alone[row] += rates[row]

    def _without_links(self, kind: str, row: Row, round_: int) -> float:
        asked = numbered(row.prompts(row.groups, round_), self._numbers)
        ids = [self._tokenizer.encode_chat([{"role": "user", "content": prompt}]) for prompt in asked]
        return statistics.harmonic_mean([self._machines[kind].rate(one, self._tokens) for one in ids])

    def _served(self, fleet: LoopbackFleet, row: Row, round_: int) -> float:
        """Ask a row's prompts; tokens are equal in number, so the mean over the groups is harmonic."""
        asked = iter(numbered(row.prompts(row.groups * row.streams, round_), self._numbers))
        together = [list(itertools.islice(asked, row.streams)) for _ in range(row.groups)]
        return statistics.harmonic_mean([self._together(fleet, row.models, group) for group in together])

    def _together(self, fleet: LoopbackFleet, models: Sequence[str], prompts: list[str]) -> float:
        if len(prompts) == 1:
            return rate(fleet, models, prompts, self._tokens)
        asked = zip(itertools.cycle(models), prompts, strict=False)
        return decode_rate(at_once([partial(listen, fleet, model, prompt, self._tokens) for model, prompt in asked]))

    def _feel(self, name: str, scene: Scene, fleet: LoopbackFleet, rounds: int) -> None:
        """Measure the gaps and first tokens of streamed answers, and what a long prompt does to them."""
        (model,) = scene.wanted
        for row, streams in ((f"{name}_1", 1), (f"{name}_8", 8)):
            heard = []
            for round_ in range(rounds):
                prompts = numbered(questions(streams, round_), self._numbers)
                heard += at_once([partial(listen, fleet, model, prompt, self._tokens) for prompt in prompts])
            self._more["latency"][row] = latencies(heard)
            self._say(f"{row}: {self._more['latency'][row]}")
        seen = [interference.measure(fleet, model, self._count, 10 * round_).figures() for round_ in range(rounds)]
        self._more["long_prompt"][name] = {key: statistics.median(one[key] for one in seen) for key in seen[0]}
        self._say(f"a long prompt beside a running answer, {name}: {self._more['long_prompt'][name]}")

    def _count(self, text: str) -> int:
        return len(self._tokenizer.encode_chat([{"role": "user", "content": text}]))


def _assembled(library: Path, out: Path) -> Path:
    subprocess.run([sys.executable, "-m", "shard_export", "assemble", str(library), str(out)], check=True, cwd=ROOT)
    return out
