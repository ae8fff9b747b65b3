"""The benchmark of the fleet, at the size of a handful of PCs: real processes, every figure is there."""

from __future__ import annotations

import sys

import pytest

from tests.bench.fleet import Size, check_open_files, measure

WANTED = {"agents", "reconnect_s", "control_rtt_p99_ms", "cpu_core_share", "rss_mb"}


@pytest.mark.slow
def test_a_few_pcs_come_back_after_a_restart_and_are_measured() -> None:
    said: list[str] = []
    found = measure(Size(returning=2, agents=3, round_trips_s=0.1, steady_s=0.2), said.append)
    assert set(found) >= WANTED
    assert (found["agents"], found["handshake_timeouts"], found["other_failures"]) == (3, 0, {})
    assert found["reconnect_s"] > found["console_down_s"] > 0
    assert found["rss_mb"] >= found["rss_now_mb"] > 0
    assert len(said) == 5


@pytest.mark.skipif(sys.platform == "win32", reason="sockets are not counted on Windows")
def test_too_few_open_files_are_told_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.bench.fleet.allow_many_files", lambda: 1024)
    with pytest.raises(SystemExit, match="1000 PCs take 2256 open files in a process, and this user may have 1024"):
        check_open_files(1000)
    check_open_files(300)
