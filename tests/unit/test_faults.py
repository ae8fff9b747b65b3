from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import cast

import psutil
import pytest

from installer.loopback import LoopbackFleet
from tests.support import faults
from tests.support.faults import Fault, Faults


@pytest.mark.parametrize("fault", ["kill-stage", "freeze-stage", "wrong-epoch"])
def test_a_stage_that_ended_since_it_was_found_is_passed_over(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    found = psutil.Process(stage.pid)
    stage.communicate()
    monkeypatch.setattr(faults, "stage_processes", lambda agent: [found])
    fleet = cast("LoopbackFleet", SimpleNamespace(process=lambda name: stage))
    with Faults(fleet) as happening:
        happening.do(fault, "pc")
        happening.undo()
