"""Does an engine compute on this device what it should, and how fast?

One layer of each kind in the stage's range runs twice: as a small stage of the engine, with streams side by side,
chunks, rejected tokens and a shared beginning, and as a static graph on the CPU that knows none of these. The same
layer, so the same weights, sizes and masks as in the real stage, at a fraction of its cost.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import openvino as ov

from agent.stage.engines.base import Engine
from agent.stage.engines.library import Library
from agent.stage.engines.options import EXACT, thread_options
from agent.stage.types import Numerics, Row, Share, StageSpec, StreamId
from shard_export.library.graph import MASKED
from shard_export.library.manifest import Manifest
from shard_export.library.packed_graph import assemble_packed

TOKENS = 40
"""Length of the sequences: more than a cache block."""
ALLOWED_ERROR: dict[Numerics, float] = {"exact": 1e-3, "fast": 0.1}
"""Of what the layer adds to its input, by norm. Three rejected tokens that stay visible make 30% and more of it, the
beginning of another stream 70%; fast numerics make 2%, exact ones 0.0003% (layers of SmolLM2)."""
PROBE_STEPS = 5
PROBE_STREAM = StreamId(-1)

Array = npt.NDArray[Any]


def find_problem(
    spec: StageSpec, library: Library, open_engine: Callable[[StageSpec], Engine], kinds: Mapping[int, int]
) -> str:
    """Compare layers of a range, of `kinds` as `sample_layers` has them, with the reference.

    Returns a sentence when one is off, else nothing. `open_engine` loads a small stage of the engine in question.
    Takes a second for each kind; raises StageLoadError, StepError.
    """
    for index in kinds.values():
        small = msgspec.structs.replace(
            spec, first=index, last=index + 1, streams=4, context_tokens=2 * TOKENS, kv_bytes=0, window_tokens=0
        )
        sequences = _sequences(small, library)
        wanted = _reference(small, library, sequences)
        engine = open_engine(small)
        try:
            found = _conversation(engine, sequences)
        finally:
            engine.close()
        error = _largest_error(found, wanted, sequences)
        if not error <= ALLOWED_ERROR[spec.numerics]:
            return (
                f"Layer {index} is off by {error:.1%} on {spec.device}, {ALLOWED_ERROR[spec.numerics]:.1%} is allowed."
            )
    return ""


def sample_layers(manifest: Manifest, first: int, last: int) -> dict[int, int]:
    """Choose one layer for each attention window of a range, by window; no end of the model if possible."""
    chosen: dict[int, int] = {}
    for index in sorted(range(first, last), key=lambda index: (index in {0, manifest.layer_count - 1}, index)):
        attention = manifest.layer(index).attention
        chosen.setdefault(attention.window_tokens if attention else 0, index)
    return chosen


def decode_ms(engine: Engine) -> float:
    """Measure one-token decodes: their median in milliseconds. Raises StepError."""
    shape = engine.shape
    token = np.zeros(1, np.int64) if shape.takes_ids else np.zeros((1, shape.hidden_size), np.float32)
    times = []
    for position in range(min(PROBE_STEPS + 1, shape.context_tokens)):
        started = time.perf_counter()
        engine.step([Row(PROBE_STREAM, position, 1)], token)
        times.append(1e3 * (time.perf_counter() - started))
    engine.release(PROBE_STREAM)
    # The first call allocates and is no measure of a decode.
    return round(statistics.median(times[1:] or times), 3)


def _sequences(spec: StageSpec, library: Library) -> list[Array]:
    """Two sequences of inputs, and one that begins like the first and ends like the second."""
    shape, random = library.shape(spec), np.random.default_rng(7)
    if shape.takes_ids:
        one, two = random.integers(0, shape.vocab_size, (2, TOKENS))
    else:
        one, two = random.standard_normal((2, TOKENS, shape.hidden_size), np.float32)
    return [one, two, np.concatenate([one[: TOKENS // 2], two[TOKENS // 2 :]])]


def _reference(spec: StageSpec, library: Library, sequences: Sequence[Array]) -> list[Array]:
    model = assemble_packed(
        library.folder, library.manifest, spec.first, spec.last, places=TOKENS, columns=1, wanted=TOKENS
    )
    compiled = ov.Core().compile_model(model, "CPU", {**EXACT, **thread_options(spec)})
    feed = {port.get_any_name(): np.zeros(port.shape, port.get_element_type().to_dtype()) for port in compiled.inputs}
    distance = np.arange(TOKENS)[:, None] - np.arange(TOKENS)
    for name, array in feed.items():
        if name.startswith("mask."):
            window = int(name.removeprefix("mask.")) or TOKENS
            array[..., 0] = MASKED
            array[..., 1:] = np.where((distance >= 0) & (distance < window), 0, MASKED)
        elif name in {"position_ids", "wanted"}:
            array[:] = np.arange(TOKENS)
    source = "input_ids" if spec.first == 0 else "hidden_states"
    return [compiled({**feed, source: sequence[None]})[0][0].copy() for sequence in sequences]


def _conversation(engine: Engine, sequences: Sequence[Array]) -> list[tuple[int, int, Array]]:
    """Run the sequences as three streams, in ways that a wrong cache would not survive.

    Returns (stream, first position, output) of every row; the third runs only what it does not share with the first.
    """
    half, most, last = TOKENS // 2, TOKENS - 12, TOKENS - 5
    steps: list[list[tuple[int, int, int]]] = [
        [(0, 0, most), (1, 0, 5)],
        [(0, most, last), (1, 5, half)],
        [(2, half, TOKENS), (0, last, TOKENS), (1, half, TOKENS)],
    ]
    shares = [Share(StreamId(2), StreamId(0), half)]
    found: list[tuple[int, int, Array]] = []
    for number, parts in enumerate(steps):
        if number == 1:
            # Wrong guesses, taken back by the next step.
            engine.step([_row(0, most, most + 3)], sequences[1][:3])
        rows = [_row(*part) for part in parts]
        tensor = np.concatenate([sequences[stream][first:end] for stream, first, end in parts])
        output = engine.step(rows, tensor, shares=shares if number == 2 else ())
        cuts = np.cumsum([row.count for row in rows])[:-1]
        found += [(row.stream, row.first, part.copy()) for row, part in zip(rows, np.split(output, cuts), strict=True)]
    return found


def _row(stream: int, first: int, end: int) -> Row:
    return Row(StreamId(stream), first, end - first, truncate_to=first, wants=end - first)


def _largest_error(
    found: Sequence[tuple[int, int, Array]], wanted: Sequence[Array], sequences: Sequence[Array]
) -> float:
    """The error of the worst row, relative to what the layer adds to its input; nan if any output is no number.

    Of a row the median position counts: where a router of experts is undecided, single positions may differ.
    """
    errors = []
    for stream, first, part in found:
        run = slice(first, first + len(part))
        whole, source = wanted[stream][run], sequences[stream][run]
        added = whole - source if source.shape == whole.shape else whole
        with np.errstate(over="ignore", invalid="ignore"):
            errors.append(np.median(np.linalg.norm(part - whole, axis=1) / np.linalg.norm(added, axis=1)))
    return float(np.max(errors))
