"""What `fallow-export build --json-events` reports, as far as the console needs it; the exporter has the docstrings."""

from __future__ import annotations

import msgspec


class Started(msgspec.Struct, frozen=True, tag="started", tag_field="type"):
    """The checkpoint is open; `finished_layers` were made by an earlier build."""

    model_id: str
    family: str
    layer_count: int
    estimated_bytes: int
    estimated_memory_bytes: int = 0
    estimated_seconds: float = 0.0
    finished_layers: int = 0
    restarted_because: str = ""
    notes: list[str] = []


class LayerDone(msgspec.Struct, frozen=True, tag="layer", tag_field="type"):
    """A layer is written."""

    index: int
    layer_count: int
    seconds: float
    eta_s: float
    fp32_error: float
    compressed_error: float


class Published(msgspec.Struct, frozen=True, tag="published", tag_field="type"):
    """The library is complete at its place."""

    folder: str
    library_digest: str
    size_bytes: int
    seconds: float
    top1_agreement: float
    mean_kl: float


class Advice(msgspec.Struct, frozen=True, tag="advice", tag_field="type"):
    """What another package says about the model."""

    package: str
    message: str


class Failed(msgspec.Struct, frozen=True, tag="failed", tag_field="type"):
    """The build ended without a library."""

    error: str
    message: str
    exit_code: int


Event = Started | LayerDone | Published | Advice | Failed
_DECODER = msgspec.json.Decoder(Event)


def event_of(line: bytes) -> Event | None:
    """Read a line; None for one that is no event, or one of a newer exporter."""
    try:
        return _DECODER.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def line_of(event: Event) -> str:
    """Say an event in one line of the log."""
    match event:
        case Started():
            more = f", going on after {event.finished_layers} finished layers" if event.finished_layers else ""
            again = f", starting over: {event.restarted_because}" if event.restarted_because else ""
            return f"{event.model_id} ({event.family}), {event.layer_count} layers{more}{again}"
        case LayerDone():
            return (
                f"layer {event.index + 1} of {event.layer_count}: {event.seconds:.1f} s, error {event.fp32_error:.1e} "
                f"before and {event.compressed_error:.1e} after compression"
            )
        case Published():
            return f"published: {event.folder}, {event.size_bytes / 1e6:.0f} MB, in {event.seconds:.0f} s"
        case Advice():
            return f"{event.package}: {event.message}"
        case Failed():
            return f"failed ({event.error}): {event.message}"
