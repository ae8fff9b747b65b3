"""The process that measures a real layer: `python -m agent.stage.benchmark`, a MeasureSpec in, a Measured out.

It makes way for every other program, looks at its gate before each inference as a stage does, and ends with its
stdin. So whoever needs the PC, or a stage that is to be loaded, ends it at any moment and nothing is lost but time.
Exit codes: 0 measured, 2 the parent sent garbage, 5 the owner is back.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from agent.stage import affinity, child
from agent.stage.errors import StageError, Yielded
from agent.stage.gate import Gate
from agent.stage.pipes import PipeClosed, read_exactly, read_spec, write_all
from agent.stage.priority import make_way
from agent.stage.speeds import EXIT_YIELDED, ROWS, Measured, MeasureSpec, StepTimes, UnitSpeed, unit_speed
from agent.stage.types import EngineName, Row, StageSpec, StreamId
from shard_export.library.manifest import Manifest

if TYPE_CHECKING:
    from agent.stage.engines import Engine
    from agent.stage.engines.library import Library

WARM_STEPS, STEPS = 2, 10
CONTEXT_TOKENS = 64
_STDIN = 0


def main() -> int:
    """Do what the first message says, answer, and return the exit code."""
    out = child.begin()
    try:
        spec = read_spec(_STDIN, MeasureSpec)
    except PipeClosed:
        return child.EXIT_CLOSED
    except ValueError as error:
        sys.stderr.write(f"{error}\n")
        return child.EXIT_GARBAGE
    if spec.stage.gentle:
        make_way()
    try:
        gate = Gate.open(Path(spec.stage.gate)) if spec.stage.gate else Gate.private()
    except (OSError, ValueError) as error:
        sys.stderr.write(f"The gate cannot be used: {error}\n")
        return child.EXIT_GARBAGE
    threading.Thread(target=_end_with_stdin, name="stdin", daemon=True).start()
    affinity.compute_here(spec.stage.cores)
    try:
        answer = measure(spec, gate)
    except Yielded:
        return EXIT_YIELDED
    write_all(out, msgspec.json.encode(answer))
    return child.EXIT_CLOSED


def _end_with_stdin() -> None:
    try:
        while True:
            read_exactly(_STDIN, 1)
    except (PipeClosed, OSError):
        os._exit(child.EXIT_CLOSED)


def measure(spec: MeasureSpec, gate: Gate) -> Measured:
    """Measure one layer with each engine. Takes seconds; raises Yielded when the gate is shut."""
    # Imported on the pinned thread: the runtime's threads inherit the affinity of the thread that loads it.
    from agent.stage.engines.library import Library

    speeds, refused, tested = list[UnitSpeed](), dict[EngineName, str](), dict[EngineName, list[int]]()
    for name in spec.engines:
        try:
            library = Library(Path(spec.stage.folder))
            whole, library.manifest = library.manifest, stacked(library.manifest, spec.stage.first, spec.copies)
            speed = _measure_engine(spec, name, library, gate)
            library.manifest = whole
            problem, kinds = _test_engine(spec, name, library, gate)
        except Yielded:
            raise
        except (StageError, RuntimeError) as error:
            refused[name] = str(error).strip()[-300:]
            continue
        if problem:
            refused[name] = problem
        else:
            speeds.append(speed)
            tested[name] = kinds
    return Measured(speeds, refused, tested)


def stacked(manifest: Manifest, layer: int, copies: int) -> Manifest:
    """Return a model whose layers are all one unit: `copies` in the middle, and one more at each end."""
    unit = manifest.layer(layer)
    layers = [msgspec.structs.replace(unit, index=index) for index in range(copies + 2)]
    others = [other for other in manifest.units if other.kind != "layer"]
    return msgspec.structs.replace(manifest, layer_count=copies + 2, units=[*others, *layers])


def _measure_engine(spec: MeasureSpec, name: EngineName, library: Library, gate: Gate) -> UnitSpeed:
    last = spec.copies + 2

    def time_stage(first: int, end: int) -> tuple[StepTimes, bool]:
        small = msgspec.structs.replace(
            spec.stage, first=first, last=end, streams=ROWS, context_tokens=CONTEXT_TOKENS, kv_bytes=0, window_tokens=0
        )
        return _time(small, name, library, gate)

    single, fused = time_stage(1, 2)
    return unit_speed(
        name,
        single,
        time_stage(1, 1 + spec.copies)[0],
        spec.copies,
        fused=fused,
        embed=time_stage(0, 1)[0] if spec.embed else None,
        head=time_stage(last - 1, last)[0] if spec.head else None,
    )


def _test_engine(spec: MeasureSpec, name: EngineName, library: Library, gate: Gate) -> tuple[str, list[int]]:
    """Do a stage's self-test ahead, so that a load in a hurry need not; returns what is wrong, and the kinds tested."""
    from agent.stage.engines import open_engine
    from agent.stage.engines.selftest import find_problem, sample_layers

    def open_small(small: StageSpec) -> Engine:
        if gate.is_shut:
            raise Yielded("This PC's owner is back; nothing is tested.")
        engine = open_engine(name, small, library)
        engine.gate = gate
        return engine

    kinds = sample_layers(library.manifest, spec.stage.first, spec.stage.last)
    return find_problem(spec.stage, library, open_small, kinds), sorted(kinds)


def _time(spec: StageSpec, name: EngineName, library: Library, gate: Gate) -> tuple[StepTimes, bool]:
    from agent.stage.engines import open_engine

    if gate.is_shut:
        raise Yielded("This PC's owner is back; nothing is measured.")
    engine = open_engine(name, spec, library)
    engine.gate = gate
    try:
        one_ms, eight_ms = _decode_ms(engine, 1), _decode_ms(engine, ROWS)
    finally:
        engine.close()
    return StepTimes(one_ms, eight_ms), engine.fused


def _decode_ms(engine: Engine, rows: int) -> float:
    """Return what a step takes with one token for each of so many streams, undisturbed. Raises StepError."""
    import numpy as np

    shape, random = engine.shape, np.random.default_rng(7)
    streams = [StreamId(-1 - row) for row in range(rows)]
    times = []
    for position in range(WARM_STEPS + STEPS):
        # Different inputs: a router of experts would send equal ones to the same few.
        tensor = (
            random.integers(0, shape.vocab_size, rows)
            if shape.takes_ids
            else random.standard_normal((rows, shape.hidden_size), np.float32)
        )
        started_s = time.perf_counter()
        engine.step([Row(stream, position, 1) for stream in streams], tensor)
        times.append(1e3 * (time.perf_counter() - started_s))
    engine.step([], None, release=streams)
    # Other programs only ever make a step slower, and this process is the last that gets a turn.
    return sorted(times[WARM_STEPS:])[STEPS // 4]


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    # Not sys.exit: native threads need no farewell, and the other thread may hold stdin's lock.
    os._exit(code)
