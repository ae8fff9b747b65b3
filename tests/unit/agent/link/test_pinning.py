"""What is said when nothing of an invite's console answers."""

from __future__ import annotations

import socket
import sys

import pytest

from agent.link.errors import ConsoleUnreachable
from agent.link.pinning import find_console
from tests.unit.agent.link.test_invite import make_invite


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has other words for it")
async def test_every_address_is_named_once_with_what_is_wrong(unused_tcp_port: int) -> None:
    urls = [f"wss://127.0.0.1:{unused_tcp_port}", f"wss://127.0.0.2:{unused_tcp_port}"]
    with pytest.raises(ConsoleUnreachable) as failed:
        await find_console(make_invite(urls=urls))
    said = str(failed.value)
    assert said.startswith(
        f"The console does not answer at {urls[0]} (connection refused) or {urls[1]} (connection refused); check"
    )
    assert said.count(str(unused_tcp_port)) == len(urls)


async def test_a_name_that_nobody_knows_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    async def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr("agent.link.pinning.connect", unknown)
    with pytest.raises(ConsoleUnreachable, match="Name or service not known"):
        await find_console(make_invite(urls=["wss://console.example:8461"]))
