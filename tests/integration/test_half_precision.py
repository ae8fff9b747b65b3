"""Half precision between two stages of the real model, `fast` numerics: the same best token, nearly the same odds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from agent.stage import activations
from agent.stage.engines import load
from agent.stage.types import StreamId
from console.pipeline.tokens import ModelTokenizer
from shard_export.library.store import load_manifest
from tests.bench.prompts import questions
from tests.support.stage import make_row, make_spec

SPLIT, LAYERS = 15, 30


def log_softmax(logits: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)


def test_half_precision_between_stages_keeps_the_best_token(smollm2_library: Path) -> None:
    tokenizer = ModelTokenizer.load(smollm2_library, load_manifest(smollm2_library))
    specs = [
        # Exact, so that all that differs is what was sent: where the runtime rounds activations to 8 bits, the smallest
        # difference of its input makes one as large as that rounding.
        make_spec(smollm2_library, first=first, last=last, stage=stage, numerics="exact", streams=2)
        for stage, (first, last) in enumerate([(0, SPLIT), (SPLIT, LAYERS)])
    ]
    head, tail = map(load, specs)
    full: list[npt.NDArray[Any]] = []
    half: list[npt.NDArray[Any]] = []
    try:
        for number, question in enumerate(questions(3)):
            ids = np.array(tokenizer.encode_chat([{"role": "user", "content": question}]))
            hidden = head.step([make_row(number, 0, len(ids))], ids).copy()
            sent = activations.pack(hidden, "fast")
            assert sent.dtype == np.float16
            for precise, logits in ((hidden, full), (activations.unpack(sent, "fast"), half)):
                logits.append(tail.step([make_row(number, 0, len(ids), wants=len(ids))], precise).copy())
                tail.release(StreamId(number))
            head.release(StreamId(number))
    finally:
        head.close()
        tail.close()
    one, other = log_softmax(np.concatenate(full)), log_softmax(np.concatenate(half))
    assert np.mean(one.argmax(1) == other.argmax(1)) >= 0.99
    divergence = (np.exp(one) * (one - other)).sum(1).mean()
    assert 0 <= divergence < 1e-3
