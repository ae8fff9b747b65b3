"""Factories for specs, rows and step frames, and a small generation loop over engines."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from agent.link.frames import Frame, FrameType, encode
from agent.stage.engines import Engine
from agent.stage.types import Epoch, PipelineId, Row, Sampling, Share, StageSpec, StepTable, StreamId

Ids = npt.NDArray[np.int64]


def make_spec(folder: Path, *, first: int = 0, last: int = 3, **fields: Any) -> StageSpec:
    values: dict[str, Any] = {
        "pipeline": PipelineId(7), "epoch": Epoch(2), "stage": 0, "engine": "paged", "numerics": "exact", "threads": 1,
        "context_tokens": 128, "streams": 8,
    }  # fmt: skip
    return StageSpec(str(folder), first, last, **(values | fields))


def make_row(stream: int = 1, first: int = 0, count: int = 1, **fields: Any) -> Row:
    return Row(StreamId(stream), first, count, **fields)


def make_step(
    rows: Sequence[Row],
    tensor: npt.NDArray[Any] | None,
    *,
    release: Sequence[int] = (),
    shares: Sequence[Share] = (),
    **fields: Any,
) -> bytes:
    values: dict[str, Any] = {"type": FrameType.STEP, "pipeline": 7, "epoch": 2, "step": 5, "sequence": 9, "stage": 0}
    table = StepTable(list(rows), [StreamId(stream) for stream in release], shares=list(shares))
    return encode(Frame(**(values | {"table": msgspec.msgpack.encode(table), "tensor": tensor} | fields)))


def generate(stages: Sequence[Engine], prompts: Sequence[Ids], tokens: int, *, batch: int) -> list[list[int]]:
    """Greedy answers, `batch` streams at a time through all stages; each stream joins one step after the last."""
    answers: list[list[int]] = []
    for start in range(0, len(prompts), batch):
        group = list(range(start, min(start + batch, len(prompts))))
        answers += _generate_group(stages, {index: prompts[index] for index in group}, tokens)
    return answers


def _generate_group(stages: Sequence[Engine], prompts: dict[int, Ids], tokens: int) -> list[list[int]]:
    data, lengths = dict(prompts), dict.fromkeys(prompts, 0)
    answers: dict[int, list[int]] = {index: [] for index in prompts}
    order, turn = list(prompts), 0
    while any(len(answer) < tokens for answer in answers.values()):
        turn += 1
        active = [index for index in order[:turn] if len(answers[index]) < tokens]
        rows = [make_row(index, lengths[index], len(data[index])) for index in active]
        tensor: npt.NDArray[Any] = np.concatenate([data[index] for index in active])
        for stage in stages:
            tensor = stage.step(rows, tensor)
        for index, logits in zip(active, tensor, strict=True):
            lengths[index] += len(data[index])
            answers[index].append(int(logits.argmax()))
            data[index] = np.array(answers[index][-1:], np.int64)
    for index in prompts:
        for stage in stages:
            stage.release(StreamId(index))
    return list(answers.values())


SEEDED = Sampling(temperature=0.8, seed=11)
