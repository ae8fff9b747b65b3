"""The employee PC's side: it serves a stage while its owner is away."""

import sys

# Importing openvino reports its use to a server on the internet unless this package cannot be imported; then it falls
# back on a stub of its own. An employee's PC talks to its console and to nobody else.
sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]  # None makes an import fail, by design
