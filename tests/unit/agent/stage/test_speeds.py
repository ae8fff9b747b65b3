"""What units take comes out of what stages of them took, and noise makes no part of it absurd."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.stage.speeds import StepTimes, UnitSpeed, unit_speed

MS = st.floats(0.001, 1e3)


def stage(layer_ms: float, fixed_ms: float, layers: int, end_ms: float = 0.0) -> StepTimes:
    one_ms = fixed_ms + layers * layer_ms + end_ms
    return StepTimes(one_ms, 2 * one_ms)


@given(MS, MS, MS, MS, st.integers(2, 16))
def test_a_layer_the_ends_and_what_is_fixed_are_told_apart(
    layer_ms: float, fixed_ms: float, embed_ms: float, head_ms: float, copies: int
) -> None:
    speed = unit_speed(
        "paged",
        stage(layer_ms, fixed_ms, 1),
        stage(layer_ms, fixed_ms, copies),
        copies,
        fused=True,
        embed=stage(layer_ms, fixed_ms, 1, embed_ms),
        head=stage(layer_ms, fixed_ms, 1, head_ms),
    )
    found = (speed.layer_ms, speed.fixed_ms, speed.embed_ms, speed.head_ms, speed.layer_ms_8, speed.head_ms_8)
    wanted = (layer_ms, fixed_ms, embed_ms, head_ms, 2 * layer_ms, 2 * head_ms)
    assert found == pytest.approx(wanted, rel=1e-6, abs=1e-6)


@given(MS, MS, MS, st.integers(2, 16))
def test_noise_makes_no_layer_free_and_no_part_cheaper_than_nothing(
    single_ms: float, stack_ms: float, head_ms: float, copies: int
) -> None:
    single, stack, head = (StepTimes(ms, ms / 3) for ms in (single_ms, stack_ms, head_ms))
    speed = unit_speed("paged", single, stack, copies, fused=True, head=head)
    assert speed.layer_ms > 0
    assert speed.layer_ms_8 >= speed.layer_ms
    assert speed.fixed_ms >= 0
    assert speed.head_ms is not None
    assert speed.head_ms >= 0


def test_what_is_not_here_is_not_known() -> None:
    speed = unit_speed("paged", StepTimes(1, 1), StepTimes(2, 2), 2, fused=True)
    assert speed == UnitSpeed(engine="paged", fused=True, layer_ms=1, layer_ms_8=1)
