"""Hidden states between two stages: f32 in `exact`, f16 in `fast` wherever f16 can hold them. Pure."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from agent.stage.types import Numerics

F16_MAX = float(np.finfo(np.float16).max)


def pack(hidden: npt.NDArray[np.float32], numerics: Numerics) -> npt.NDArray[Any]:
    """Return what to send for the hidden states [T,H].

    A step with a value that f16 cannot hold (models trained in bf16 have such outliers) or that is not a number goes
    out in f32, untouched: the receiver takes either, and nothing is ever clipped.
    """
    if numerics == "exact" or not hidden.size:
        return hidden
    largest = max(float(hidden.max()), -float(hidden.min()))
    return hidden.astype(np.float16) if largest <= F16_MAX else hidden


def unpack(tensor: npt.NDArray[Any] | None, numerics: Numerics) -> npt.NDArray[Any] | None:
    """Return a received tensor as an engine takes it: f16 becomes f32.

    Everything else stays as it is; so does f16 in `exact`, where the engine's check refuses it.
    """
    takes_f16 = numerics == "fast" and tensor is not None and tensor.dtype == np.float16
    return tensor.astype(np.float32) if takes_f16 and tensor is not None else tensor
