"""Where the stateful engine's infer requests come from: one compiled model for all, or one for each.

Every request of a compiled model should have a state of its own. Some GPU drivers mixed them up, so the first two
requests prove it with a few tokens; where they fail, each stream gets a compiled model of its own, which costs the
memory of the weights again. States of attention that was left in pieces are not even tried: the CPU runtime keeps such
a state in memory that all requests of the model share, and writes beyond it once two streams differ in length.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import openvino as ov

PROBE_TOKENS = 3
SAME = 1e-2
"""Largest relative difference between the same tokens in the same state; another state is off by much more."""

Array = npt.NDArray[Any]
RunToken = Callable[[Any, int, int], Array]
"""Run a request on one of two tokens (0 or 1) at a position, the states before it full; returns the output."""


class Requests:
    """Makes infer requests whose states are independent."""

    def __init__(
        self,
        compile_model: Callable[[], ov.CompiledModel],
        may_share: Callable[[ov.CompiledModel], bool],
        run_token: RunToken,
    ) -> None:
        """Compile, and probe where `may_share` allows it. Raises RuntimeError when the device fails."""
        self._compile = compile_model
        self.compiled = compile_model()
        self._spare = [self.compiled.create_infer_request()]
        self.shared = False
        if may_share(self.compiled):
            second = self.compiled.create_infer_request()
            self.shared = independent(self._spare[0], second, run_token)
            if self.shared:
                self._spare.append(second)

    def make(self) -> Any:
        """Return a request with an empty state."""
        if self._spare:
            request = self._spare.pop()
            request.reset_state()
            return request
        return (self.compiled if self.shared else self._compile()).create_infer_request()


def independent(first: Any, second: Any, run_token: RunToken) -> bool:
    """Tell whether two requests keep apart: taking turns and resetting one must not change what the other says."""
    alone = _run(first, [1] * PROBE_TOKENS, run_token)
    first.reset_state()
    found = []
    for position in range(PROBE_TOKENS):
        if position == PROBE_TOKENS - 1:
            first.reset_state()
            run_token(first, 0, 0)
        else:
            run_token(first, 0, position)
        found.append(run_token(second, 1, position).copy())
    first.reset_state()
    again = _run(first, [1] * PROBE_TOKENS, run_token)
    return _alike(found, alone) and _alike(again, alone)


def _run(request: Any, tokens: Sequence[int], run_token: RunToken) -> list[Array]:
    return [run_token(request, token, position).copy() for position, token in enumerate(tokens)]


def _alike(found: Sequence[Array], wanted: Sequence[Array]) -> bool:
    pairs = zip(found, wanted, strict=True)
    return all(bool(np.linalg.norm(one - other) <= SAME * np.linalg.norm(other)) for one, other in pairs)
