"""Eight bits where four do most harm, and no more of them than were asked for."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from shard_export.build.sensitivity import choose_for_eight_bits, measure_damage, room_for_eight_bits
from shard_export.library.manifest import Compression, FileRecord, Unit

MATRICES = st.dictionaries(
    st.sampled_from(["q", "k", "v", "o", "gate", "up", "down"]),
    st.tuples(st.floats(0, 1e6), st.integers(1, 1000)),
    min_size=1,
)


def make_layer(index: int, share: float) -> Unit:
    file = FileRecord("x", 1, "0")
    return Unit(f"layer-{index:03d}", "layer", index, file, file, Compression("int4_gptq", 5.0, int8_share=share))


@given(MATRICES, st.floats(0, 5000))
def test_the_worst_for_their_size_come_first_and_nothing_beyond_the_room(
    matrices: dict[str, tuple[float, int]], room: float
) -> None:
    damage = {name: harm for name, (harm, _) in matrices.items()}
    sizes = {name: size for name, (_, size) in matrices.items()}
    chosen = choose_for_eight_bits(damage, sizes, room)
    assert sum(sizes[name] for name in chosen) <= room
    left = room - sum(sizes[name] for name in chosen)
    for name in sizes.keys() - chosen:
        # It does not fit any more, at the latest beside those that are worse for their size.
        worse = [other for other in chosen if damage[other] / sizes[other] >= damage[name] / sizes[name]]
        assert sizes[name] > left or sizes[name] > room - sum(sizes[other] for other in worse)


def test_what_one_layer_leaves_goes_to_the_next() -> None:
    weights = {0: 1000, 1: 1000, 2: 2000}
    assert room_for_eight_bits(0.3, weights, 0, []) == pytest.approx(300.5)
    finished = [make_layer(0, 0.25)]
    assert room_for_eight_bits(0.3, weights, 1, finished) == pytest.approx(350.5)
    assert room_for_eight_bits(0.3, weights, 2, [*finished, make_layer(1, 0.35)]) == pytest.approx(600.5)


def test_damage_is_seen_at_the_output_of_the_layer() -> None:
    torch.manual_seed(0)
    layer = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 64))
    with torch.no_grad():
        layer[1].weight[:, 32:] = 0
        layer[0].weight[32:] *= 100  # large, but nobody reads what it makes
        before = [parameter.clone() for parameter in layer.parameters()]
        text = torch.randn(50, 64)
        damage = measure_damage(layer, lambda: layer(text), 32)
    assert damage.keys() == {"0.weight", "1.weight"}
    assert 0 < damage["0.weight"] < damage["1.weight"]
    assert all(torch.equal(one, other) for one, other in zip(layer.parameters(), before, strict=True))
