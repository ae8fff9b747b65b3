"""Whoever dials while the console is busy waits in the system's queue, and is taken in a few at a time."""

from __future__ import annotations

import asyncio
import socket
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from console.fleet.accepting import ACCEPTED_A_TURN, QUEUE, backlog, lengthen_queue
from tests.support.patience import PATIENCE_S

HOST = "127.0.0.1"
CALLERS = 200


def longest_queue() -> int:
    """Return what Linux allows; elsewhere nobody tells."""
    path = Path("/proc/sys/net/core/somaxconn")
    return int(path.read_text()) if path.exists() else 128


@pytest.mark.skipif(sys.platform == "win32", reason="Windows accepts one connection a turn by itself")
@pytest.mark.skipif(longest_queue() < CALLERS, reason="this system lets fewer connections wait than the test makes")
async def test_hundreds_wait_while_nobody_accepts_and_all_are_taken_in_a_few_a_turn() -> None:
    taken: list[asyncio.Protocol] = []

    def take() -> asyncio.Protocol:
        taken.append(asyncio.Protocol())
        return taken[-1]

    server = await asyncio.get_running_loop().create_server(take, HOST, 0, backlog=backlog())
    lengthen_queue(server.sockets)
    with ExitStack() as callers:
        for _ in range(CALLERS):  # this blocks the loop: nobody accepts meanwhile
            callers.enter_context(socket.create_connection(server.sockets[0].getsockname(), timeout=PATIENCE_S))
        most = turns = 0
        while len(taken) < CALLERS:
            before, turns = len(taken), turns + 1
            await asyncio.sleep(0)
            most = max(most, len(taken) - before)
        assert most <= ACCEPTED_A_TURN + 1  # newer versions of asyncio accept one more
        assert turns >= CALLERS / (ACCEPTED_A_TURN + 1)
    server.close()
    await server.wait_closed()


def test_where_one_connection_a_turn_is_accepted_anyway_the_queue_is_asked_for_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("console.fleet.accepting.sys.platform", "win32")
    assert backlog() == QUEUE
    with socket.create_server((HOST, 0)) as listening:
        monkeypatch.setattr(socket.socket, "listen", lambda *_: pytest.fail("it listens already"))
        lengthen_queue([listening])
