"""From a STEP frame to its answer: the worker's core, without pipes and threads.

Belongs to one thread: the one that owns the engine.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import openvino as ov
import psutil

from agent.link.frames import HEADER, Frame, FrameError, FrameType, decode, encode
from agent.link.parsing import UNREADABLE
from agent.stage import activations
from agent.stage.engines.base import Engine
from agent.stage.engines.selection import Selection
from agent.stage.errors import BadStep, StaleEpoch, StepError
from agent.stage.grammar import Grammars, can_constrain
from agent.stage.tail import Tail
from agent.stage.types import Epoch, Logprobs, Nack, Refusal, StageReport, StageSpec, StageTiming, StepTable
from shard_export.library.manifest import Manifest

GENTLE_INFER_MS = 80
"""An inference cannot be interrupted, and 100 ms after the owner's first input nothing may begin or go on."""

_table_decoder = msgspec.msgpack.Decoder(StepTable)
_encoder = msgspec.msgpack.Encoder()


class _Computed(NamedTuple):
    """What a stage makes of a step: hidden states, or at the tail ids and what else was found of them."""

    output: np.ndarray | None
    logprobs: list[Logprobs | None]
    refused: list[Refusal]
    sampling_s: float = 0.0


class StepRunner:
    """Answers frames for one loaded stage: the engine, and at the last one the sampling."""

    def __init__(
        self,
        spec: StageSpec,
        engine: Engine,
        clock: Callable[[], float] = time.perf_counter,
        *,
        grammars: Grammars | None = None,
    ) -> None:
        """Without `grammars` a tail refuses the streams that have one."""
        self._spec, self._engine, self._clock = spec, engine, clock
        self._grammars = grammars
        self._tail = self._new_tail() if engine.shape.is_tail else None

    def answer(self, data: bytes | memoryview, arrived_s: float) -> bytes:
        """Run one whole frame and return the frame to send: the next stage's STEP, TOKENS, or a NACK.

        `arrived_s` is when the frame was read, on the runner's clock. Never raises for what a frame can contain.
        """
        try:
            frame = decode(data)
        except FrameError as error:
            return self._nack(data, BadStep(f"{error} Send the step again."))
        try:
            return self._run(frame, arrived_s)
        except StepError as error:
            return self._nack(data, error)

    def advance(self, epoch: Epoch, stage: int) -> StageSpec:
        """Go on as `stage` of a new plan epoch, with nothing cached; returns what the stage is now."""
        self._spec = msgspec.structs.replace(self._spec, epoch=epoch, stage=stage)
        self._engine.forget_all()
        self._tail = self._new_tail() if self._tail else None
        return self._spec

    def _new_tail(self) -> Tail:
        return Tail(self._engine.shape.vocab_size, self._grammars)

    def _run(self, frame: Frame, arrived_s: float) -> bytes:
        started = self._clock()
        table = self._accept(frame)
        output, logprobs, refused, sampling_s = self._compute(table, frame.tensor)
        spent_us, waited_us = _microseconds(self._clock() - started), _microseconds(started - arrived_s)
        timing = StageTiming(spent_us, waited_us, _microseconds(sampling_s))
        answer = StepTable(table.rows, table.release, [*table.timings, timing], logprobs, table.shares, refused)
        return encode(
            Frame(
                type=FrameType.TOKENS if self._tail else FrameType.STEP,
                pipeline=frame.pipeline,
                epoch=frame.epoch,
                step=frame.step,
                sequence=frame.sequence,
                stage=self._spec.stage if self._tail else self._spec.stage + 1,
                table=_encoder.encode(answer),
                tensor=output,
                flags=frame.flags,
            )
        )

    def _accept(self, frame: Frame) -> StepTable:
        spec = self._spec
        if frame.epoch != spec.epoch:
            raise StaleEpoch(f"The step belongs to epoch {frame.epoch} and this stage to {spec.epoch}; drop it.")
        if frame.type is not FrameType.STEP or frame.pipeline != spec.pipeline or frame.stage != spec.stage:
            raise BadStep(
                f"A {frame.type.name} frame for stage {frame.stage} of pipeline {frame.pipeline} reached stage "
                f"{spec.stage} of pipeline {spec.pipeline}; check the route."
            )
        try:
            return _table_decoder.decode(frame.table)
        except UNREADABLE as error:
            raise BadStep(f"The step's table cannot be parsed ({error}); send it again.") from error

    def _compute(self, table: StepTable, tensor: np.ndarray | None) -> _Computed:
        tail, rows = self._tail, table.rows
        if tail:
            for stream in table.release:
                tail.release(stream)
            tail.expect(rows)
        hidden = activations.unpack(tensor, self._spec.numerics)
        output = self._engine.step(rows, hidden, shares=table.shares, release=table.release)
        if not tail:
            return _Computed(activations.pack(output, self._spec.numerics) if rows else None, [], [])
        sampling_began = self._clock()
        tail.extend(rows)
        ids, logprobs = tail.pick(rows, output) if len(output) else (None, [])
        return _Computed(ids, logprobs, tail.refusals(rows), self._clock() - sampling_began)

    def _nack(self, data: bytes | memoryview, error: StepError) -> bytes:
        """Answer with the header's own numbers, so that the coordinator can match even a broken frame."""
        _, _, _, _, _, pipeline, epoch, step, sequence, *_ = HEADER.unpack_from(data)
        return nack_frame(self._spec.stage, error.code, str(error), (pipeline, epoch, step, sequence))


def nack_frame(stage: int, code: str, message: str, header: tuple[int, int, int, int]) -> bytes:
    """Build a NACK; `header` is (pipeline, epoch, step, sequence) of the frame it answers."""
    pipeline, epoch, step, sequence = header
    table = _encoder.encode(Nack(stage, code, message))
    return encode(Frame(FrameType.NACK, pipeline, epoch, step, sequence, stage, table, None))


def report_frame(spec: StageSpec, report: StageReport) -> bytes:
    """Build the REPORT that a child sends once its stage is ready."""
    return encode(Frame(FrameType.REPORT, spec.pipeline, spec.epoch, 0, 0, spec.stage, _encoder.encode(report), None))


def read_grammars(spec: StageSpec, manifest: Manifest) -> Grammars | None:
    """Read what the stage needs to keep answers to grammars; None: it needs nothing. Raises GrammarUnusable."""
    folder = Path(spec.folder)
    if not (spec.constrains and spec.last == manifest.layer_count and can_constrain(folder, manifest)):
        return None
    return Grammars.read(folder, manifest)


def describe(
    spec: StageSpec, engine: Engine, selection: Selection, load_ms: float, *, constrains: bool = False
) -> StageReport:
    """Report on a freshly loaded engine; `constrains` says whether it has the means for grammars."""
    # Cache pages are taken as they are first written: count all of them, not only those the self-test touched.
    memory_bytes = psutil.Process().memory_info().rss + engine.kv_bytes
    return StageReport(
        library_digest=engine.library_digest,
        first=spec.first,
        last=spec.last,
        engine=selection.engine,
        numerics=spec.numerics,
        device=spec.device,
        fused=engine.fused,
        kv_tokens=engine.kv_tokens,
        memory_bytes=memory_bytes,
        load_ms=round(load_ms, 1),
        probe_ms=selection.decode_ms,
        openvino=ov.__version__,
        cache=engine.cache,
        kv_bytes=engine.kv_bytes,
        reason="; ".join(filter(None, (selection.reason, engine.remark))),
        refused=selection.refused,
        tested=selection.tested,
        # A static graph cuts a step into inferences of its own size, each with the gate before it.
        infer_ms=GENTLE_INFER_MS if spec.gentle and selection.engine != "packed" else 0,
        constrains=constrains,
    )


def _microseconds(seconds: float) -> int:
    return max(0, round(1e6 * seconds))
