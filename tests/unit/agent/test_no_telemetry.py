from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import sys, threading
import {module}
import openvino
import openvino.tools.ovc
assert not any(name.startswith("openvino_telemetry.") for name in sys.modules), "telemetry was imported"
assert threading.active_count() == 1, threading.enumerate()
"""


@pytest.mark.parametrize("module", ["agent.service", "agent.stage.worker", "agent.devices"])
def test_nothing_is_reported_to_the_maker_of_the_runtime(module: str) -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT.format(module=module)], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
