"""What travels between stages: f16 in `fast` as far as f16 reaches, f32 bit for bit in `exact`."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from agent.stage.activations import F16_MAX, pack, unpack

HIDDEN = arrays.arrays(np.float32, st.tuples(st.integers(0, 4), st.integers(1, 8)), elements=st.floats(width=32))


@given(HIDDEN)
def test_exact_sends_the_very_bits(hidden: np.ndarray) -> None:
    received = unpack(pack(hidden, "exact"), "exact")
    assert received is not None
    assert received.tobytes() == hidden.tobytes()


@given(HIDDEN)
def test_fast_is_as_close_as_f16_and_never_clips(hidden: np.ndarray) -> None:
    sent = pack(hidden, "fast")
    received = unpack(sent, "fast")
    assert received is not None
    assert received.dtype == np.float32
    if sent.dtype == np.float16:
        np.testing.assert_allclose(received, hidden, rtol=2**-11, atol=2**-24)
    else:
        assert not hidden.size or not np.abs(hidden).max() <= F16_MAX
        assert received.tobytes() == hidden.tobytes()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 65_536.0, -1e30])
def test_a_step_that_f16_cannot_hold_goes_out_in_f32(value: float) -> None:
    hidden = np.array([[1.0, value]], np.float32)
    assert pack(hidden, "fast") is hidden


def test_f16_that_reaches_an_exact_stage_stays_recognisable() -> None:
    tensor = np.ones((1, 2), np.float16)
    assert unpack(tensor, "exact") is tensor


def test_ids_and_nothing_pass_through() -> None:
    ids = np.arange(3)
    assert unpack(ids, "fast") is ids
    assert unpack(None, "fast") is None
