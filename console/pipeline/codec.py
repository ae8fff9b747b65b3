"""Steps as frames, and frames back as answers to them: what of the wire the console writes and reads. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec
import numpy as np

from agent.link.frames import Frame, FrameType, encode
from agent.link.parsing import UNREADABLE
from agent.stage.types import Epoch, Logprobs, Nack, PipelineId, Refusal, StageTiming, StepTable
from console.pipeline.plans import Step

_encode_table = msgspec.msgpack.Encoder().encode
_decode_table = msgspec.msgpack.Decoder(StepTable).decode
_decode_nack = msgspec.msgpack.Decoder(Nack).decode


class Reply(NamedTuple):
    """What answered a step: its sampled ids, as many `logprobs` or none, and one timing for each stage.

    `refused` are the streams that the tail gives up.
    """

    ids: list[int]
    logprobs: list[Logprobs | None]
    refused: list[Refusal]
    timings: list[StageTiming]

    @property
    def compute_us(self) -> list[int]:
        return [timing.compute_us for timing in self.timings]


class StepCodec:
    """Writes and reads the frames of one pipeline of `stages` stages in one plan epoch."""

    def __init__(self, pipeline: PipelineId, epoch: Epoch, *, stages: int, vocab_size: int) -> None:
        self._pipeline = pipeline
        self._epoch = epoch
        self._stages = stages
        self._vocab_size = vocab_size

    def step(self, step: Step) -> bytes:
        """Return the STEP frame for stage 0."""
        return encode(
            Frame(
                type=FrameType.STEP,
                pipeline=self._pipeline,
                epoch=self._epoch,
                step=step.id,
                sequence=_sequence(step.id),
                stage=0,
                table=_encode_table(StepTable(step.rows, step.release, shares=list(step.shares))),
                tensor=np.array(step.tokens, np.int64) if step.tokens else None,
            )
        )

    def concerns(self, frame: Frame) -> bool:
        """Whether a frame belongs to this pipeline and epoch."""
        return frame.pipeline == self._pipeline and frame.epoch == self._epoch

    def in_sequence(self, frame: Frame) -> bool:
        """Whether a frame's sequence number is the one of its step."""
        return frame.sequence == _sequence(frame.step)

    def reply(self, frame: Frame, wants: int) -> Reply | None:
        """Read the TOKENS frame of a step that wants so many ids; None for anything that does not answer it."""
        try:
            table = _decode_table(frame.table)
        except UNREADABLE:
            return None
        ids = self._ids(frame)
        fits = ids is not None and len(ids) == wants and len(table.logprobs) in {0, wants}
        scored = (token for entry in table.logprobs if entry for token, _ in entry.top)
        if ids is None or not fits or not self._all_known(scored) or len(table.timings) != self._stages:
            return None
        return Reply(ids, table.logprobs, table.refused, table.timings)

    def nack(self, frame: Frame) -> Nack | None:
        """Read a NACK frame; None if it cannot be read."""
        try:
            return _decode_nack(frame.table)
        except UNREADABLE:
            return None

    def _ids(self, frame: Frame) -> list[int] | None:
        if frame.tensor is None:
            return []
        if frame.tensor.dtype != np.int32:
            return None
        ids: list[int] = frame.tensor.reshape(-1).tolist()
        return ids if self._all_known(ids) else None

    def _all_known(self, ids: Iterable[int]) -> bool:
        return all(0 <= token < self._vocab_size for token in ids)


def _sequence(step_id: int) -> int:
    return step_id & 0xFFFFFFFF
