"""Which engines have passed their self-test on this PC: `tested.json` in the data folder. Event loop only.

A self-test computes layers of a library, one of each kind, and takes a second of each load. What it finds depends on
the layer's kind, the device with its driver, the runtime, the numerics and the engine, and on nothing that changes
between two loads: so a test that was passed holds until one of these is another. Failures are not remembered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from agent.kept import read_kept, write_kept
from agent.link.messages import Device
from agent.stage.types import EngineName, Numerics

MOST_PASSED = 256
"""The latest ones; what a PC forgets is tested again."""
_LOST = "engines are tested again when they are loaded"


class Place(msgspec.Struct, frozen=True):
    """All that a self-test depends on beside the engine and the layer's attention window."""

    library_digest: str
    device: str
    full_name: str
    driver: str
    openvino: str
    numerics: Numerics


class Passed(msgspec.Struct, frozen=True):
    """An engine that computes layers with this attention window (in tokens; 0: all) as it should."""

    place: Place
    engine: EngineName
    window_tokens: int


class TestedEngines:
    """Remembers for the next start. A damaged file is begun anew."""

    __test__ = False
    """Not a test, whatever its name makes of it."""

    def __init__(self, folder: Path, devices: Callable[[], Sequence[Device]], openvino: Callable[[], str]) -> None:
        """`devices` are those of this PC as they are now, `openvino` is the version of its runtime."""
        self._path = folder / "tested.json"
        self._devices, self._openvino = devices, openvino
        self._passed = read_kept(self._path, list[Passed], lost=_LOST) or []

    def windows(self, library_digest: str, device: str, numerics: Numerics) -> dict[EngineName, list[int]]:
        """Say which layers' kinds, by their windows, need no test with which engine."""
        place, found = self._place(library_digest, device, numerics), dict[EngineName, list[int]]()
        for passed in self._passed:
            if passed.place == place:
                found.setdefault(passed.engine, []).append(passed.window_tokens)
        return found

    def learn(
        self, library_digest: str, device: str, numerics: Numerics, tested: Mapping[EngineName, Sequence[int]]
    ) -> None:
        """Note what an engine has passed by now; on a device that is not there any more nothing is noted."""
        place = self._place(library_digest, device, numerics)
        if place is None:
            return
        fresh = [Passed(place, engine, window) for engine, windows in tested.items() for window in windows]
        if news := [passed for passed in fresh if passed not in self._passed]:
            self._passed = [*self._passed, *news][-MOST_PASSED:]
            write_kept(self._path, self._passed, lost=_LOST)

    def _place(self, library_digest: str, name: str, numerics: Numerics) -> Place | None:
        device = next((device for device in self._devices() if device.name == name), None)
        if device is None or not self._openvino():
            return None
        return Place(library_digest, name, device.full_name, device.driver, self._openvino(), numerics)
