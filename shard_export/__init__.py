"""Checkpoint in, layer library out."""

import sys

# OpenVINO reports its use over the network when it is imported and when it converts. Nobody's PC shall do that for us:
# where this package cannot be imported OpenVINO falls back to a stub of its own.
sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]  # None is how the import system says "absent"
