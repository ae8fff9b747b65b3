"""What was measured on this PC, and what is still to be: `measured.json` in the data folder. Event loop only."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from agent.kept import read_kept, write_kept
from agent.link.messages import Device
from agent.stage.speeds import Measurement
from agent.stage.types import Numerics

MOST_LIBRARIES, MOST_MEASUREMENTS = 16, 128
"""The latest ones; a PC that saw more models than this forgets the first. There is room for eight measurements of each:
one that is thrown out while its library stays would be taken again and again."""
_LOST = "this PC is measured anew"


class Held(msgspec.Struct, frozen=True):
    """A library of which layers are here, and which of its ends."""

    digest: str
    embed: bool = False
    head: bool = False


class Wanted(msgspec.Struct, frozen=True):
    """What is not measured yet: a library's layer on one device."""

    library: Held
    device: Device
    numerics: Numerics

    @property
    def what(self) -> tuple[Held, str, str, Numerics]:
        """Name it without what changes all the time, as the memory that a device offers."""
        return self.library, self.device.name, self.device.driver, self.numerics


class _Kept(msgspec.Struct, frozen=True):
    libraries: list[Held] = []
    measurements: list[Measurement] = []


class MeasurementBook:
    """Remembers for the next start. A damaged file is begun anew."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "measured.json"
        kept = read_kept(self._path, _Kept, lost=_LOST) or _Kept()
        self.libraries, self.measurements = kept.libraries, kept.measurements

    def hold(self, came: Held) -> bool:
        """Note layers that came; returns whether that is news."""
        before = next((held for held in self.libraries if held.digest == came.digest), None)
        if before is not None:
            came = Held(came.digest, embed=came.embed or before.embed, head=came.head or before.head)
            if came == before:
                return False
        self.libraries = [*(held for held in self.libraries if held != before), came][-MOST_LIBRARIES:]
        self._write()
        return True

    def lose(self, library: Held) -> None:
        """Forget a library whose layers are not here any more; what was measured stays true."""
        self.libraries = [held for held in self.libraries if held.digest != library.digest]
        self._write()

    def add(self, measured: Measurement) -> None:
        """Take a measurement; one of the same library, device and numerics is replaced."""
        others = [known for known in self.measurements if _place(known) != _place(measured)]
        self.measurements = [*others, measured][-MOST_MEASUREMENTS:]
        self._write()

    def missing(self, devices: Sequence[Device], openvino: str) -> list[Wanted]:
        """List what is not measured with these drivers and this runtime, the latest library first."""
        return [
            Wanted(held, device, numerics)
            for held in reversed(self.libraries)
            for device in devices
            for numerics in _numerics(device)
            if not any(_says(known, held, device, openvino, numerics) for known in self.measurements)
        ]

    def _write(self) -> None:
        write_kept(self._path, _Kept(self.libraries, self.measurements), lost=_LOST)


def _numerics(device: Device) -> list[Numerics]:
    # An NPU computes in 16 bits.
    return ["fast"] if device.name.startswith("NPU") else ["fast", "exact"]


def _place(known: Measurement) -> tuple[str, str, str]:
    return known.library_digest, known.device, known.numerics


def _says(known: Measurement, held: Held, device: Device, openvino: str, numerics: Numerics) -> bool:
    """Whether a measurement still holds, and says all that can be known here."""
    same = _place(known) == (held.digest, device.name, numerics)
    same = same and (known.driver, known.openvino) == (device.driver, openvino)
    lacks_embed = held.embed and any(speed.embed_ms is None for speed in known.speeds)
    lacks_head = held.head and any(speed.head_ms is None for speed in known.speeds)
    return same and not lacks_embed and not lacks_head
