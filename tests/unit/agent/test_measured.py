"""What is to be measured follows from what is here and from what was measured before, with which driver and runtime."""

from __future__ import annotations

from pathlib import Path

from agent.link.messages import Device
from agent.measured import MOST_LIBRARIES, Held, MeasurementBook
from tests.support.measurements import make_measurement, make_speed

CPU = Device("CPU", "A processor", 8 << 30, ["paged", "stateful"])
NPU = Device("NPU", "An accelerator", 8 << 30, ["packed"], driver="32.1")
INNER = Held("a" * 64)


def wanted(book: MeasurementBook, *devices: Device, openvino: str = "2026.4") -> list[tuple[str, str, str]]:
    return [(one.library.digest[:1], one.device.name, one.numerics) for one in book.missing(devices, openvino)]


def test_every_device_is_measured_in_the_numerics_it_has(tmp_path: Path) -> None:
    book = MeasurementBook(tmp_path)
    assert wanted(book, CPU) == []
    assert book.hold(INNER)
    assert wanted(book, CPU, NPU) == [("a", "CPU", "fast"), ("a", "CPU", "exact"), ("a", "NPU", "fast")]


def test_a_measurement_counts_until_driver_or_runtime_change(tmp_path: Path) -> None:
    book = MeasurementBook(tmp_path)
    book.hold(INNER)
    book.add(make_measurement(device="NPU", driver="32.1"))
    assert wanted(book, NPU) == []
    assert wanted(book, Device("NPU", "An accelerator", 8 << 30, ["packed"], driver="32.2")) == [("a", "NPU", "fast")]
    assert wanted(book, NPU, openvino="2026.5") == [("a", "NPU", "fast")]
    book.add(make_measurement(device="NPU", driver="32.2"))
    assert [known.driver for known in book.measurements] == ["32.2"]


def test_an_end_that_comes_later_is_measured_then(tmp_path: Path) -> None:
    book = MeasurementBook(tmp_path)
    book.hold(INNER)
    book.add(make_measurement(device="NPU", driver="32.1"))
    assert book.hold(Held(INNER.digest, head=True))
    assert not book.hold(INNER)
    assert wanted(book, NPU) == [("a", "NPU", "fast")]
    book.add(make_measurement(device="NPU", driver="32.1", speeds=[make_speed(head_ms=3.0)]))
    assert wanted(book, NPU) == []


def test_the_next_start_knows_it_and_the_latest_library_comes_first(tmp_path: Path) -> None:
    book = MeasurementBook(tmp_path)
    for number in range(MOST_LIBRARIES + 1):
        book.hold(Held(f"{number:x}" * 64))
    book.add(make_measurement())
    again = MeasurementBook(tmp_path)
    assert again.measurements == book.measurements
    assert [held.digest[0] for held in again.libraries][:2] == ["1", "2"]
    assert wanted(again, NPU)[0] == ("1", "NPU", "fast")
    again.lose(again.libraries[-1])
    assert wanted(again, NPU)[0] == ("f", "NPU", "fast")


def test_a_damaged_file_is_begun_anew(tmp_path: Path) -> None:
    (tmp_path / "measured.json").write_text("{")
    assert MeasurementBook(tmp_path).measurements == []
