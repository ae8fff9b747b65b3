from __future__ import annotations

import os
import sys

import pytest

from agent.volunteer import sleep
from agent.volunteer.sleep import SleepDelay

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="logind is Linux'")


async def test_the_lock_is_held_until_it_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    reads, writes = os.pipe()
    given = [writes, -1]
    monkeypatch.setattr(sleep, "_inhibit", lambda: given.pop(0))
    delay = SleepDelay()
    await delay.take()
    await delay.take()  # there is one already
    was_held = delay.is_held
    delay.let_go()
    delay.let_go()
    assert (was_held, delay.is_held, given) == (True, False, [-1])
    assert os.read(reads, 1) == b"", "the descriptor is closed, which is what logind waits for"
    os.close(reads)


async def test_without_logind_nothing_is_delayed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:path=/nowhere/at/all")
    delay = SleepDelay()
    await delay.take()
    assert not delay.is_held
    delay.let_go()
