"""Lines of `fallow-export build --json-events`, into events and back into words for the log."""

from __future__ import annotations

import msgspec

from shard_export.library.counts import counted
from shard_export.library.events import BuildAdvice, BuildEvent, BuildFailed, BuildPublished, BuildStarted, LayerDone

_DECODER = msgspec.json.Decoder(BuildEvent)


def event_of(line: bytes) -> BuildEvent | None:
    """Read a line; None for one that is no event, or one of a newer exporter."""
    try:
        return _DECODER.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def line_of(event: BuildEvent) -> str:
    """Say an event in one line of the log."""
    match event:
        case BuildStarted():
            more = (
                f", going on after {counted(event.finished_layers, 'finished layer')}" if event.finished_layers else ""
            )
            again = f", starting over: {event.restarted_because}" if event.restarted_because else ""
            return f"{event.model_id} ({event.family}), {counted(event.layer_count, 'layer')}{more}{again}"
        case LayerDone():
            return (
                f"layer {event.index + 1} of {event.layer_count}: {event.seconds:.1f} s, error {event.fp32_error:.1e} "
                f"before and {event.compressed_error:.1e} after compression"
            )
        case BuildPublished():
            return f"published: {event.folder}, {event.size_bytes / 1e6:.0f} MB, in {event.seconds:.0f} s"
        case BuildAdvice():
            return f"{event.package}: {event.message}"
        case BuildFailed():
            return f"failed ({event.error}): {event.message}"
