"""Opening the way to a collector, if one is configured and the libraries are there."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from console.errors import TelemetryUnusable

if TYPE_CHECKING:
    from console.telemetry.exporting import OtlpTracer


def open_tracer(endpoint: str, version: str) -> OtlpTracer:
    """Return what sends traces to `endpoint`. Raises TelemetryUnusable."""
    parts = urlsplit(endpoint)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise TelemetryUnusable(f"{endpoint!r} is no address of a collector; write it as http://collector:4318")
    if parts.password:
        raise TelemetryUnusable(
            "The collector's address holds a password that everybody on this PC can read; put what it needs into "
            "OTEL_EXPORTER_OTLP_HEADERS instead."
        )
    try:
        from console.telemetry.exporting import OtlpTracer
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "opentelemetry":
            raise
        raise TelemetryUnusable(
            "Traces need the extra `telemetry`; install it with: pip install 'fallow[console,telemetry]', or leave "
            "--otlp-endpoint out."
        ) from None
    return OtlpTracer(endpoint, version)
