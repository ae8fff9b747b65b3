from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.volunteer.facts import Memory
from agent.volunteer.memory import (
    COMMIT_RESERVE_BYTES,
    MAX_CORRECTIONS,
    PROCESS_BYTES,
    Correction,
    Corrections,
    DeviceMemory,
    Need,
    Room,
    load_room,
    need,
    plannable_bytes,
    refusal,
    room,
)

GIB = 1 << 30
CPU = DeviceMemory()
IGPU = DeviceMemory("unified", total_bytes=8 * GIB)
CARD = DeviceMemory("own", total_bytes=8 * GIB)
PC = Memory(16 * GIB, 10 * GIB)
HUGE = 1 << 48

sizes = st.integers(0, 1 << 40)
devices = st.builds(DeviceMemory, st.sampled_from(["main", "unified", "own"]), sizes, sizes)


def test_the_owners_part_stays_free() -> None:
    assert room(CPU, PC, floor_bytes=4 * GIB, cap_bytes=HUGE).size_bytes == 6 * GIB
    assert "owner" in room(CPU, PC, floor_bytes=4 * GIB, cap_bytes=HUGE).limited_by
    assert room(CPU, PC, floor_bytes=12 * GIB, cap_bytes=HUGE).size_bytes == 0


def test_the_settings_limit_it() -> None:
    assert room(CPU, PC, floor_bytes=4 * GIB, cap_bytes=GIB) == Room(GIB, "the settings")
    assert room(CPU, PC, floor_bytes=4 * GIB, cap_bytes=-GIB).size_bytes == 0


def test_memory_that_gpu_and_processor_share_is_counted_once() -> None:
    assert room(IGPU, PC, floor_bytes=4 * GIB, cap_bytes=HUGE).size_bytes == 6 * GIB
    small = DeviceMemory("unified", total_bytes=5 * GIB)
    assert room(small, PC, floor_bytes=4 * GIB, cap_bytes=HUGE, held_bytes=GIB) == Room(
        int(4.5 * GIB) - GIB, "the device's memory"
    )


def test_a_graphics_cards_memory_is_its_own() -> None:
    assert (
        room(CARD, PC, floor_bytes=12 * GIB, cap_bytes=HUGE, held_bytes=2 * GIB).size_bytes == int(7.2 * GIB) - 2 * GIB
    )


def test_a_device_that_tells_no_total_is_limited_by_main_memory() -> None:
    assert room(DeviceMemory("unified"), PC, floor_bytes=4 * GIB, cap_bytes=HUGE).size_bytes == 6 * GIB


def test_what_windows_cannot_promise_is_not_used() -> None:
    found = room(CPU, PC, floor_bytes=4 * GIB, cap_bytes=HUGE, commit_free_bytes=5 * GIB)
    assert (found.size_bytes, "Windows" in found.limited_by) == (5 * GIB - COMMIT_RESERVE_BYTES, True)


def test_what_windows_grants_limits_a_device_and_not_the_processor() -> None:
    for device, size in ((CARD, GIB), (IGPU, GIB), (CPU, 6 * GIB)):
        found = room(device, PC, floor_bytes=4 * GIB, cap_bytes=HUGE, granted_bytes=GIB)
        assert found.size_bytes == size


@given(devices, sizes, sizes, sizes, sizes, st.none() | sizes)
def test_the_budget_is_never_more_than_any_limit(
    device: DeviceMemory, available: int, floor: int, cap: int, held: int, commit: int | None
) -> None:
    found = room(
        device, Memory(HUGE, available), floor_bytes=floor, cap_bytes=cap, held_bytes=held, commit_free_bytes=commit
    ).size_bytes
    assert 0 <= found <= cap
    if device.kind != "own":
        assert found <= max(0, available - floor)
    if device.kind != "main" and device.total_bytes:
        assert found <= max(0, device.total_bytes - held)


def test_a_stage_is_expected_to_take_more_than_its_files() -> None:
    wanted = need(CPU, weights_bytes=GIB, cache_bytes=GIB, largest_bytes=5, ratio=None)
    assert wanted.steady_bytes == pytest.approx((PROCESS_BYTES + 2 * GIB) * 1.15, abs=1)
    assert wanted == Need(wanted.steady_bytes, wanted.steady_bytes, 5)


def test_what_was_measured_replaces_the_guess() -> None:
    wanted = need(CPU, weights_bytes=GIB, cache_bytes=0, largest_bytes=0, ratio=1.5)
    assert wanted.steady_bytes == pytest.approx((PROCESS_BYTES + GIB) * 1.5 * 1.05, abs=1)


def test_compiling_for_a_gpu_holds_the_weights_twice() -> None:
    for device, more in ((IGPU, 2 * GIB), (CPU, 0)):
        wanted = need(device, weights_bytes=2 * GIB, cache_bytes=GIB, largest_bytes=0, ratio=None)
        assert wanted.load_bytes == wanted.steady_bytes + more
    wanted = need(CARD, weights_bytes=2 * GIB, cache_bytes=GIB, largest_bytes=0, ratio=None)
    assert wanted.load_bytes == PROCESS_BYTES + 2 * GIB


@given(st.integers(0, 1 << 44), st.lists(st.floats(0.8, 4.0), max_size=4), st.floats(0, 1))
def test_what_is_offered_fits_by_the_books(budget: int, ratios: list[float], share: float) -> None:
    offered = plannable_bytes(budget, ratios)
    weights = int(max(0, offered - PROCESS_BYTES) * share)
    cache = max(0, offered - PROCESS_BYTES - weights)
    if offered < PROCESS_BYTES:
        return
    for ratio in (None, *ratios):
        wanted = need(CPU, weights_bytes=weights, cache_bytes=cache, largest_bytes=0, ratio=ratio)
        assert wanted.steady_bytes <= budget + 1


def test_a_stage_that_fits_may_begin() -> None:
    assert refusal(Need(GIB, GIB), CPU, Room(GIB, ""), Room(GIB, "")) == ""


@pytest.mark.parametrize(
    ("wanted", "device", "said"),
    [
        (Need(2 * GIB, 2 * GIB), CPU, "2048 MiB, but only 1024 MiB may be used here because of the settings"),
        (Need(GIB, 4 * GIB), CPU, "while they load"),
        (Need(GIB, GIB, 3 * GIB), DeviceMemory("unified", largest_buffer_bytes=GIB), "buffer of 3072 MiB"),
        (Need(0, 0), CPU, "cannot be"),
        (Need(-GIB, GIB), CPU, "cannot be"),
        (Need(GIB, GIB, -1), CPU, "cannot be"),
        (Need(2**62, 2**62), CPU, "cannot be"),
    ],
)
def test_a_stage_that_does_not_fit_is_told_why(wanted: Need, device: DeviceMemory, said: str) -> None:
    assert said in refusal(wanted, device, Room(GIB, "the settings"), Room(2 * GIB, "the owner"))


def test_loading_may_use_half_of_the_owners_part_for_a_moment() -> None:
    assert load_room(PC, floor_bytes=4 * GIB).size_bytes == 8 * GIB


def test_corrections_belong_to_a_library_a_device_and_its_driver() -> None:
    corrections = Corrections()
    assert corrections.learn("llama", "GPU", "31.0", expected=100, measured=150)
    assert corrections.learn("gemma", "GPU", "31.0", expected=100, measured=90)
    assert corrections.ratio("llama", "GPU", "31.0") == 1.5
    assert corrections.ratio("llama", "CPU", "") is None
    assert sorted(corrections.ratios("GPU", "31.0")) == [0.9, 1.5]
    assert corrections.learn("gemma", "GPU", "32.0", expected=100, measured=100)
    assert corrections.ratios("GPU", "31.0") == []


@pytest.mark.parametrize(("measured", "ratio"), [(1, 0.8), (10**9, 4.0)])
def test_an_absurd_measurement_is_bounded(measured: int, ratio: float) -> None:
    corrections = Corrections()
    assert corrections.learn("llama", "CPU", "", expected=1000, measured=measured)
    assert corrections.ratio("llama", "CPU", "") == ratio


def test_no_measurement_teaches_nothing() -> None:
    corrections = Corrections([Correction("a", "CPU", "", float("nan")), Correction("b", "CPU", "", 99.0)])
    assert not corrections.learn("llama", "CPU", "", expected=0, measured=5)
    assert not corrections.learn("llama", "CPU", "", expected=5, measured=0)
    assert corrections.all() == []


def test_the_oldest_corrections_are_forgotten() -> None:
    corrections = Corrections()
    for number in range(MAX_CORRECTIONS + 1):
        corrections.learn(str(number), "CPU", "", expected=100, measured=100)
    assert len(corrections.all()) == MAX_CORRECTIONS
    assert corrections.ratio("0", "CPU", "") is None
