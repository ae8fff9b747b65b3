"""A private Prometheus on a port of its choice, and what it says; and `promtool`."""

from __future__ import annotations

import contextlib
import math
import re
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml

from installer import prometheus
from tests.support.patience import PATIENCE_S

POLL_S = 0.1
_LISTENS = re.compile(r'msg="Listening on" address=(\S+)')
Sample = tuple[Mapping[str, str], float]


def skip_without_prometheus() -> None:
    """Skip the test where Prometheus is not installed."""
    if prometheus.missing_programs():
        pytest.skip("Prometheus is not installed (Debian: apt-get install prometheus)")


def promtool(*arguments: str | Path, given: str = "") -> str:
    """Run it; returns what it said, asserts that it is content."""
    done = subprocess.run(
        ["promtool", *map(str, arguments)], input=given, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    said = f"{done.stdout}\n{done.stderr}".strip()
    assert done.returncode == 0, said
    return said


class Prometheus:
    """A running server. Blocking calls."""

    def __init__(self, http: httpx2.Client) -> None:
        self._http = http

    def query(self, expression: str, at_s: float | None = None) -> list[Sample]:
        """Evaluate at a moment; returns labels with finite values. Asserts that it can be parsed and evaluated."""
        asked = {"query": expression} | ({} if at_s is None else {"time": str(at_s)})
        answer = self._http.post("/api/v1/query", data=asked).json()
        assert answer["status"] == "success", f"{expression}: {answer.get('error')}"
        assert not answer.get("warnings"), answer["warnings"]
        found = [(one["metric"], float(one["value"][1])) for one in answer["data"]["result"]]
        return [(labels, value) for labels, value in found if math.isfinite(value)]

    def label_values(self, label: str, selector: str) -> list[str]:
        """List the values that a label of the selected series has."""
        answer = self._http.get(f"/api/v1/label/{label}/values", params={"match[]": selector}).json()
        assert answer["status"] == "success", answer
        return list(answer["data"])

    def rules(self) -> list[dict[str, Any]]:
        """List the alert rules as they were evaluated last."""
        groups = self._http.get("/api/v1/rules", params={"type": "alert"}).json()["data"]["groups"]
        return [rule for group in groups for rule in group["rules"]]

    def targets(self) -> list[dict[str, Any]]:
        """List what it collects from."""
        return list(self._http.get("/api/v1/targets").json()["data"]["activeTargets"])


@contextlib.contextmanager
def running_prometheus(
    folder: Path, scrape_configs: Sequence[Mapping[str, Any]], rule_files: Sequence[Path], *, interval: str = "1s"
) -> Iterator[Prometheus]:
    """Start a server that collects and evaluates that often, or skip what needs one."""
    skip_without_prometheus()
    folder.mkdir(parents=True, exist_ok=True)
    config, log = folder / "prometheus.yml", folder / "prometheus.log"
    often = {"scrape_interval": interval, "scrape_timeout": interval, "evaluation_interval": interval}
    whole = {"global": often, "scrape_configs": [*scrape_configs], "rule_files": [str(path) for path in rule_files]}
    config.write_text(yaml.safe_dump(whole))
    promtool("check", "config", config)
    command = ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}"]
    with log.open("wb") as written:
        process = subprocess.Popen(
            [*command, "--web.listen-address=127.0.0.1:0"], stdin=subprocess.DEVNULL, stdout=written, stderr=written
        )
    try:
        with httpx2.Client(base_url=_address(process, log), trust_env=False, timeout=PATIENCE_S) as http:
            yield Prometheus(http)
    finally:
        process.terminate()
        try:
            process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    """Wait until it listens; it says where in its log."""
    deadline_s = time.monotonic() + PATIENCE_S
    while not (found := _LISTENS.search(said := log.read_text("utf-8", "replace"))):
        assert process.poll() is None, said
        assert time.monotonic() < deadline_s, said
        time.sleep(POLL_S)
    return f"http://{found[1]}"
