"""A self-test that was passed holds until what it depends on is another, and over a restart."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.link.messages import Device
from agent.tested import MOST_PASSED, TestedEngines

LIBRARY = "a" * 64
NPU = Device("NPU", "An accelerator", 8 << 30, ["packed"], driver="32.1")


def book(folder: Path, *devices: Device, openvino: str = "2026.4") -> TestedEngines:
    return TestedEngines(folder, lambda: devices or [NPU], lambda: openvino)


def test_what_was_passed_is_known_at_the_next_start(tmp_path: Path) -> None:
    assert book(tmp_path).windows(LIBRARY, "NPU", "fast") == {}
    book(tmp_path).learn(LIBRARY, "NPU", "fast", {"packed": [0, 4096], "paged": []})
    assert book(tmp_path).windows(LIBRARY, "NPU", "fast") == {"packed": [0, 4096]}


@pytest.mark.parametrize(
    "device",
    [
        Device("NPU", "An accelerator", 8 << 30, ["packed"], driver="32.2"),
        Device("NPU", "Another accelerator", 8 << 30, ["packed"], driver="32.1"),
    ],
)
def test_another_driver_or_device_is_tested_anew(tmp_path: Path, device: Device) -> None:
    book(tmp_path).learn(LIBRARY, "NPU", "fast", {"packed": [0]})
    assert book(tmp_path, device).windows(LIBRARY, "NPU", "fast") == {}


def test_another_runtime_library_or_other_numerics_are_tested_anew(tmp_path: Path) -> None:
    tested = book(tmp_path)
    tested.learn(LIBRARY, "NPU", "fast", {"packed": [0]})
    assert tested.windows("b" * 64, "NPU", "fast") == tested.windows(LIBRARY, "NPU", "exact") == {}
    assert book(tmp_path, openvino="2026.5").windows(LIBRARY, "NPU", "fast") == {}


def test_of_what_is_not_there_nothing_is_known_or_noted(tmp_path: Path) -> None:
    gone, unusable = book(tmp_path), book(tmp_path, openvino="")
    gone.learn(LIBRARY, "GPU", "fast", {"paged": [0]})
    unusable.learn(LIBRARY, "NPU", "fast", {"packed": [0]})
    assert gone.windows(LIBRARY, "GPU", "fast") == unusable.windows(LIBRARY, "NPU", "fast") == {}
    assert list(tmp_path.iterdir()) == []


def test_the_latest_are_kept_and_nothing_twice(tmp_path: Path) -> None:
    tested = book(tmp_path)
    for window in [*range(MOST_PASSED + 1), 5]:
        tested.learn(LIBRARY, "NPU", "fast", {"packed": [window]})
    assert tested.windows(LIBRARY, "NPU", "fast") == {"packed": list(range(1, MOST_PASSED + 1))}
