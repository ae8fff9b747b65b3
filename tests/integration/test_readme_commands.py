"""Every block of commands in README.md runs as written, one after the other, in a fresh clone.

A block is a terminal. The test does what a reader does beside typing: it puts a checkpoint where the export looks for
one, waits until a program is up before it goes on, and fills in the id of the PC. `pytest` is told by its environment
to run a small part of itself only, and the agent's settings say that nobody sits at this machine.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.conftest import SampleModel
from tests.support.documents import ROOT, fences
from tests.support.patience import PATIENCE_S

STEP_S = 1500.0
"""Installing everything on a machine that does other things, too."""
PORTS = (8460, 8461)
CHECKS = "tests/unit/installer/test_environment.py"
"""What `bootstrap.py test` runs of the tests here: it is itself one of them."""


class Reader:
    """Somebody who goes through README.md, with a home of their own."""

    def __init__(self, folder: Path, checkpoint: Path) -> None:
        self.tree, self._logs = folder / "fallow", folder / "logs"
        self._logs.mkdir()
        self._preamble = "set -euo pipefail\n"
        self._open: list[tuple[subprocess.Popen[bytes], Path]] = []
        self._environment = environment(folder)
        clone(self.tree)
        (self.tree / "models").mkdir()
        (self.tree / "models" / checkpoint.name).symlink_to(checkpoint)
        data = folder / "home" / ".local" / "share" / "fallow-agent"
        data.mkdir(parents=True)
        (data / "agent.toml").write_text('volunteer = "always"\n', encoding="utf-8")

    def type(self, block: str, *, stays: bool = False) -> str:
        """Type a block into a new terminal, wait for its end unless it `stays`, and return what it printed."""
        log = self._logs / f"{len(self._open)}.log"
        errors = log.with_suffix(".errors")
        with log.open("wb") as output, errors.open("wb") as complaints:
            terminal = subprocess.Popen(
                ["bash", "-c", self._preamble + block], cwd=self.tree, env=self._environment,
                stdin=subprocess.DEVNULL, stdout=output, stderr=complaints, start_new_session=True,
            )  # fmt: skip
        self._open.append((terminal, log))
        if not stays:
            code = terminal.wait(STEP_S)
            assert code == 0, f"{block}\nended with {code}:\n{said(log)}"
        if "activate" in block:
            self._preamble += ". .venv/bin/activate\n"
        return log.read_text(errors="replace")

    def ask(self, command: str) -> Any:
        """Ask a program something beside what is typed; None while it does not answer."""
        done = subprocess.run(
            ["bash", "-c", f"{self._preamble}{command} --json"], cwd=self.tree, env=self._environment,
            stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE_S, check=False,
        )  # fmt: skip
        return json.loads(done.stdout) if done.returncode == 0 else None

    def until(self, true: Callable[[], Any]) -> Any:
        """Wait until a program is as far; fails with what was printed if a terminal ends instead."""
        end_s = time.monotonic() + PATIENCE_S
        while not (value := true()):
            ended = [
                log.read_text(errors="replace") for terminal, log in self._open if terminal.poll() not in (None, 0)
            ]
            assert not ended, ended[-1][-4000:]
            assert time.monotonic() < end_s, [log.read_text(errors="replace")[-2000:] for _, log in self._open]
            time.sleep(0.2)
        return value

    def close(self) -> None:
        """End what still runs, as closing the terminals does."""
        for terminal, _ in reversed(self._open):
            with contextlib.suppress(psutil.NoSuchProcess):
                family = psutil.Process(terminal.pid).children(recursive=True)
                os.killpg(terminal.pid, signal.SIGTERM)
                _, alive = psutil.wait_procs(family, timeout=PATIENCE_S)
                assert not alive
            terminal.wait(PATIENCE_S)


def said(log: Path) -> str:
    """The end of what a terminal showed: what was printed, then the complaints."""
    return "".join(path.read_text(errors="replace")[-3000:] for path in (log, log.with_suffix(".errors")))


def environment(folder: Path) -> dict[str, str]:
    """A home without anything, and the downloads that pip has already."""
    cache = subprocess.run([sys.executable, "-m", "pip", "cache", "dir"], capture_output=True, text=True, check=False)
    dropped = ("PYTHON", "VIRTUAL_ENV", "XDG_", "FALLOW_", "QT_", "PYTEST")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    beside = str(Path(sys.executable).parent)
    path = os.pathsep.join(part for part in kept["PATH"].split(os.pathsep) if part != beside)
    python = folder / "bin"
    python.mkdir()
    (python / "python").symlink_to(Path(sys.executable).resolve())
    return kept | {
        "HOME": str(folder / "home"),
        "PATH": f"{python}{os.pathsep}{path}",
        "PIP_CACHE_DIR": cache.stdout.strip() or str(folder / "pip"),
        "PYTEST_ADDOPTS": CHECKS,
    }


def clone(tree: Path) -> None:
    """Copy what a clone would have: the files of the tree as they are now, without anything that was made from them."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    ).stdout
    for name in filter(None, listed.decode().split("\0")):
        if (ROOT / name).exists():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tree / name)


def free(port: int) -> bool:
    """Whether nobody listens there."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


@pytest.fixture
def reader(tmp_path: Path, smollm2_source: SampleModel) -> Iterator[Reader]:
    """A reader in a fresh clone, all of whose programs end with the test."""
    busy = [port for port in PORTS if not free(port)]
    assert not busy, f"README.md's commands use the ports {PORTS}; something else on this machine listens on {busy}."
    person = Reader(tmp_path, smollm2_source.folder / smollm2_source.file_name)
    yield person
    person.close()


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.skipif(shutil.which("bash") is None or shutil.which("curl") is None, reason="bash and curl")
def test_every_block_of_the_readme_runs_as_written(reader: Reader) -> None:
    answer = ""
    for block in fences(ROOT / "README.md"):
        if "fallow-console serve" in block:
            reader.type(block, stays=True)
            reader.until(lambda: reader.ask("fallow-console status"))
        elif "fallow-agent run" in block:
            reader.type(block, stays=True)
            reader.until(lambda: pcs(reader))
        elif "approve ID" in block:
            (pc,) = pcs(reader)
            reader.type(block.replace("approve ID", f"approve {pc['device_id']}"))
            reader.until(lambda: pcs(reader)[0]["link"] == "connected")
        else:
            answer = reader.type(block)
    completion = json.loads(answer)  # the last block asks
    assert completion["choices"][0]["message"]["content"].strip()


def pcs(reader: Reader) -> list[dict[str, Any]]:
    """The PCs that the console knows."""
    return list(reader.ask("fallow-console agents") or [])
