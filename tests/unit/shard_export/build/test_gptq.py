"""Rounding by inputs: smaller errors of the product than plain rounding, in the same four bits."""

from __future__ import annotations

import pytest
import torch

from shard_export.build import gptq
from shard_export.build.gptq import blocks_of, round_by_inputs
from shard_export.build.packed import Packed
from shard_export.build.quantize import pack_plain

ROWS, WIDTH, TOKENS = 24, 128, 600


def make_inputs(seed: int = 0) -> torch.Tensor:
    """Inputs as layers have them: correlated, a few columns much larger than the rest."""
    random = torch.Generator().manual_seed(seed)
    mixed = torch.randn(TOKENS, WIDTH // 4, generator=random) @ torch.randn(WIDTH // 4, WIDTH, generator=random)
    mixed += torch.randn(TOKENS, WIDTH, generator=random)
    mixed[:, ::16] *= 8
    return mixed


def make_weight() -> torch.Tensor:
    return torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(1))


def product_error(packed: Packed, weight: torch.Tensor, inputs: torch.Tensor) -> float:
    lacking = weight - torch.from_numpy(packed.dequantized())
    return float((inputs @ lacking.T).square().mean())


def moments_of(inputs: torch.Tensor) -> list[torch.Tensor]:
    return [inputs[:, part].T @ inputs[:, part] / len(inputs) for part in blocks_of(inputs.shape[1])]


def test_the_product_is_far_closer_than_after_plain_rounding() -> None:
    weight, inputs = make_weight(), make_inputs()
    rounded = round_by_inputs(weight.clone(), moments_of(inputs), 32)
    plain = pack_plain(weight.numpy(), "w", "int4_asym", 32)
    assert product_error(rounded, weight, inputs) < 0.4 * product_error(plain, weight, inputs)
    unseen = torch.cat([inputs[300:], make_inputs()[:300]])
    assert product_error(rounded, weight, unseen) < 0.4 * product_error(plain, weight, unseen)


def test_the_weights_handed_in_stay_as_they_are() -> None:
    weight = make_weight()
    before = weight.clone()
    round_by_inputs(weight, moments_of(make_inputs()), 32)
    assert torch.equal(weight, before)


def test_weights_on_a_grid_of_four_bits_are_found_again() -> None:
    random = torch.Generator().manual_seed(2)
    codes = torch.randint(0, 16, (ROWS, 4, 32), generator=random).float()
    codes[..., 0], codes[..., 1] = 0, 15
    weight = (codes * 0.015625 - 0.1).reshape(ROWS, WIDTH)
    packed = round_by_inputs(weight, moments_of(make_inputs()), 32)
    assert torch.allclose(torch.from_numpy(packed.dequantized()), weight, atol=1e-3)


def test_the_same_inputs_give_the_same_bytes() -> None:
    first, second = (round_by_inputs(make_weight(), moments_of(make_inputs()), 32) for _ in range(2))
    for one, other in zip(first.values, second.values, strict=True):
        assert one is not None
        assert other is not None
        assert one.tobytes() == other.tobytes()


def test_columns_nobody_feeds_and_rows_of_zeros_do_no_harm() -> None:
    inputs, weight = make_inputs(), make_weight()
    inputs[:, 40:80] = 0
    weight[3] = 0
    packed = round_by_inputs(weight, moments_of(inputs), 32)
    assert torch.isfinite(torch.from_numpy(packed.dequantized())).all()
    assert not packed.dequantized()[3].any()
    silent = round_by_inputs(weight, [torch.zeros(WIDTH, WIDTH)], 32)
    assert torch.allclose(torch.from_numpy(silent.dequantized()), weight, atol=0.5)


def test_wide_matrices_are_rounded_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gptq, "BLOCK_COLUMNS", 64)
    weight, inputs = make_weight(), make_inputs()
    assert [(part.start, part.stop) for part in blocks_of(150)] == [(0, 64), (64, 128), (128, 150)]
    packed = round_by_inputs(weight, moments_of(inputs), 32)
    plain = pack_plain(weight.numpy(), "w", "int4_asym", 32)
    assert packed.values.codes.shape == (ROWS, 4, 32)
    assert product_error(packed, weight, inputs) < 0.7 * product_error(plain, weight, inputs)
