"""The registry and event loops: what is asked in its threads, and how asking on the loop is found in every test."""

from __future__ import annotations

import asyncio
import operator
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from console.fleet.clones import CloneWatch
from console.registry.records import DeviceRecord
from console.registry.registry import AT_ONCE, Registry
from tests.support import loop_watch
from tests.support.patience import PATIENCE_S


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Registry]:
    with Registry.open(tmp_path / "registry.sqlite3") as opened:
        yield opened


async def test_many_writers_at_once_take_turns_and_none_gives_up(registry: Registry) -> None:
    made = await asyncio.gather(*(registry.ask(registry.invites.create) for _ in range(200)))
    assert len({one.token_id for one in made}) == 200
    assert len(await registry.ask(registry.invites.list)) == 200


async def test_as_many_calls_run_at_once_as_there_are_threads_and_the_loop_goes_on(registry: Registry) -> None:
    begun, may_end = threading.Semaphore(0), threading.Event()

    def work() -> str:
        begun.release()
        assert may_end.wait(PATIENCE_S)
        return threading.current_thread().name

    calls = [asyncio.create_task(registry.ask(work)) for _ in range(AT_ONCE + 3)]
    for _ in range(AT_ONCE):
        assert await asyncio.to_thread(begun.acquire, timeout=PATIENCE_S)
    assert not begun.acquire(blocking=False)
    assert not any(call.done() for call in calls)
    may_end.set()
    assert len(set(await asyncio.gather(*calls))) == AT_ONCE


async def test_a_change_whose_asker_was_cancelled_is_made_and_followed_by_what_must_follow(registry: Registry) -> None:
    begun, may_end = asyncio.Event(), threading.Event()
    loop, followed = asyncio.get_running_loop(), list[object]()

    def work() -> object:
        loop.call_soon_threadsafe(begun.set)
        assert may_end.wait(PATIENCE_S)
        return registry.invites.create().token_id

    asking = asyncio.create_task(registry.ask(work, followed.append))
    await begun.wait()
    asking.cancel()
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert [record.token_id for record in registry.invites.list()] == [token.hex() for token in followed]  # type: ignore[attr-defined]


async def test_closing_waits_for_what_was_asked(tmp_path: Path) -> None:
    registry = Registry.open(tmp_path / "registry.sqlite3")
    begun, may_end = threading.Event(), threading.Event()

    def work() -> DeviceRecord | None:
        begun.set()
        assert may_end.wait(PATIENCE_S)
        return registry.devices.find("0" * 16)  # type: ignore[arg-type]  # an id

    asking = asyncio.create_task(registry.ask(work))
    assert await asyncio.to_thread(begun.wait, PATIENCE_S)
    closing = asyncio.create_task(asyncio.to_thread(registry.close))
    await asyncio.sleep(0)
    assert not closing.done()
    may_end.set()
    assert await asking is None
    await closing


async def test_the_console_asking_on_the_loop_is_found_and_a_tests_own_look_is_not(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, expected_logs: Any
) -> None:
    from tests.conftest import LOOP_WATCH

    expected_logs("console.fleet.clones", "could not be written")  # nothing to await
    watch = CloneWatch(registry)
    registry.devices.list()
    await registry.ask(registry.devices.list)
    assert LOOP_WATCH.take() == []

    monkeypatch.setattr(registry, "ask", operator.call)
    watch.confirm("0" * 16, "1-ab")  # type: ignore[arg-type]  # an id
    await watch.stop()
    assert LOOP_WATCH.take() == ["console/fleet/clones.py: _confirm"]


def test_only_files_that_are_there_may_ask_on_the_loop() -> None:
    assert all((loop_watch.ROOT / name).is_file() for name in loop_watch.ALLOWED)
