"""From nothing to an answer in the windows alone, on a real screen, with a real service, build and PCs.

With FALLOW_PICTURES=FOLDER a picture of each step is kept there, for people to look at.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

import psutil
import pytest

from console.data import service_file_path
from tests.support.desktop import desktop
from tests.support.patience import PATIENCE_S

MOST_STEPS = 10


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.skipif(sys.platform != "linux", reason="Xvfb, openbox and tint2")
def test_somebody_who_never_saw_it_gets_an_answer_in_ten_steps(smollm2_source: tuple[Path, str]) -> None:
    source, name = smollm2_source
    if pictures := os.environ.get("FALLOW_PICTURES"):
        Path(pictures).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="fallow-") as place, desktop(Path(place)) as screen:
        folder = screen.folder / "steps"
        folder.mkdir()
        shutil.copy(source / name, screen.folder / "model.gguf")
        walk = screen.start(sys.executable, "-m", "tests.support.first_steps", str(folder))
        try:
            assert walk.wait(1100) == 0, (screen.folder / "python.log").read_text()[-4000:]
        finally:
            end_service(folder / "console")
        steps = json.loads((screen.folder / "python.log").read_text().splitlines()[-1])["steps"]
        assert len(steps) <= MOST_STEPS


def end_service(folder: Path) -> None:
    """End the service that the window started: it outlives the window on purpose."""
    path = service_file_path(folder)
    if path.exists():
        service = psutil.Process(json.loads(path.read_text())["process_id"])
        family = [service, *service.children(recursive=True)]
        service.terminate()
        assert not psutil.wait_procs(family, timeout=PATIENCE_S)[1]
