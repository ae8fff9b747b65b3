"""How far two computations of the same thing are apart, and how far they may be."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from shard_export.library.errors import ParityFailed
from shard_export.library.manifest import EndToEnd

MAX_RELATIVE_ERROR = 1e-4
"""Largest difference to transformers before compression, relative to the token's largest value."""

MAX_MEAN_KL = 4.0
"""Compressed logits further than this (in nats) from the source's are noise: plain INT4 of a small model costs 0.4."""

Array = np.ndarray[Any, Any]


def relative_error(found: Array, wanted: Array) -> float:
    """Return the worst token's max|found - wanted| / max|wanted| over the last axis; infinite when not comparable.

    Token by token, because a model's first token can be a thousand times larger than the others and would hide them.
    """
    if found.shape != wanted.shape or not (np.isfinite(found).all() and np.isfinite(wanted).all()):
        return float("inf")
    largest = np.maximum(np.abs(wanted).max(-1), np.finfo(np.float32).tiny)
    return float((np.abs(found - wanted).max(-1) / largest).max(initial=0.0))


def check(error: float, what: str) -> None:
    """Raise ParityFailed when a float32 unit differs from transformers."""
    if not 0 <= error <= MAX_RELATIVE_ERROR:
        raise ParityFailed(
            f"The unit {what} differs from transformers by {error:.1e} (allowed {MAX_RELATIVE_ERROR:.0e}), so nothing "
            "was published; this model cannot be exported by this version."
        )


def check_finite(error: float, what: str) -> None:
    """Raise ParityFailed when a compressed unit gave something that is no number."""
    if not np.isfinite(error):
        raise ParityFailed(
            f"The compressed unit {what} computes values that are not finite, so nothing was published; choose "
            "--layers int8_asym or another group size."
        )


def compare_logits(reference: Array, plain: Array, stored: Array) -> EndToEnd:
    """Compare the three chains' logits [2,n,V]; raises ParityFailed for noise."""
    fp32_error = relative_error(plain, reference)
    check(fp32_error, "chain as a whole")
    ours, theirs = (torch.log_softmax(torch.from_numpy(logits), -1) for logits in (stored, reference))
    mean_kl = float((theirs.exp() * (theirs - ours)).sum(-1).double().mean())
    if not mean_kl <= MAX_MEAN_KL:
        raise ParityFailed(
            f"The compressed model's answers have nothing to do with the source's (mean KL {mean_kl:.2f}), so nothing "
            "was published; choose --layers int8_asym or a smaller group size."
        )
    agreement = float((stored.argmax(-1) == reference.argmax(-1)).mean())
    return EndToEnd(
        positions=int(np.prod(reference.shape[:2])), top1_agreement=agreement, mean_kl=mean_kl, fp32_error=fp32_error
    )
