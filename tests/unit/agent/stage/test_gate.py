from __future__ import annotations

import stat
import threading
from pathlib import Path

import pytest

from agent.stage.errors import Yielded
from agent.stage.gate import Gate, Gates


def test_both_ends_see_one_page(tmp_path: Path) -> None:
    agent = Gate.create(tmp_path / "1.gate")
    child = Gate.open(tmp_path / "1.gate")
    child.enter()
    assert agent.is_inside
    child.leave(7)
    assert (agent.entered, agent.tokens, agent.is_inside) == (1, 7, False)
    assert agent.moved_ns >= agent.entered_ns > 0
    assert agent.busy_s >= 0
    agent.shut()
    with pytest.raises(Yielded, match="owner is back"):
        child.enter()
    assert agent.entered == 1
    agent.reopen()
    child.enter()
    assert stat.S_IMODE((tmp_path / "1.gate").stat().st_mode) == 0o600
    agent.close()
    child.close()
    child.close()


def test_a_private_gate_is_open(tmp_path: Path) -> None:
    gate = Gate.private()
    gate.enter()
    gate.leave(1)
    gate.beat()
    assert gate.beat_ns > 0


def test_all_gates_shut_together_also_those_made_later(tmp_path: Path) -> None:
    gates = Gates(tmp_path / "gates")
    first = gates.make()
    gates.shut()
    second = gates.make()
    assert first.is_shut
    assert second.is_shut
    assert gates.are_shut
    gates.reopen()
    assert not any(gate.is_shut for gate in gates.all())
    gates.remove(first)
    assert first.path is not None
    assert not first.path.exists()
    gates.shut()  # one that is gone is not touched any more
    assert gates.all() == [second]
    gates.remove(second)


def test_what_a_killed_agent_left_is_deleted(tmp_path: Path) -> None:
    folder = tmp_path / "gates"
    folder.mkdir()
    (folder / "9.gate").write_bytes(b"torn")
    assert Gates(folder).all() == []
    assert list(folder.iterdir()) == []


def test_gates_are_shut_from_another_thread_while_stages_come_and_go(tmp_path: Path) -> None:
    gates = Gates(tmp_path / "gates")
    stop = threading.Event()

    def flutter() -> None:
        while not stop.is_set():
            gates.shut()
            gates.reopen()

    thread = threading.Thread(target=flutter)
    thread.start()
    try:
        for _ in range(50):
            gates.remove(gates.make())
    finally:
        stop.set()
        thread.join()
    assert gates.all() == []
