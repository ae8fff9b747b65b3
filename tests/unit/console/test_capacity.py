"""A console raises what bounds it, as far as it may, and says so when that is not far."""

from __future__ import annotations

import asyncio
import ssl
import sys
from asyncio import sslproto

import pytest

from console.capacity import OLD_MACOS_FILES, TLS_BUFFER_BYTES, WANTED_FILES, allow_many_files, shrink_tls_buffers
from tests.conftest import ExpectLogs

if sys.platform == "win32":
    pytest.skip("sockets are not counted on Windows", allow_module_level=True)

import resource

INFINITE = resource.RLIM_INFINITY


class Limits:
    """Stands in for the system's; `most` is what it grants whatever its hard limit says."""

    def __init__(self, soft: int, hard: int, most: int = 1 << 30) -> None:
        self.soft, self.hard, self.most = soft, hard, most

    def get(self, _: int) -> tuple[int, int]:
        return self.soft, self.hard

    def set(self, _: int, limits: tuple[int, int]) -> None:
        if limits[0] > self.most:
            raise ValueError("current limit exceeds maximum limit")
        self.soft = limits[0]


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        (Limits(1024, 4096), 4096),
        (Limits(1024, 1 << 20), WANTED_FILES),
        (Limits(256, INFINITE, OLD_MACOS_FILES), OLD_MACOS_FILES),
        (Limits(100_000, 100_000), 100_000),
        (Limits(INFINITE, INFINITE), None),
    ],
)
def test_the_limit_is_raised_as_far_as_the_system_lets_it(
    limits: Limits, expected: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", limits.get)
    monkeypatch.setattr(resource, "setrlimit", limits.set)
    assert allow_many_files() == expected


def test_a_low_limit_is_told_with_what_it_is_enough_for(
    monkeypatch: pytest.MonkeyPatch, expected_logs: ExpectLogs
) -> None:
    expected_logs("console.capacity", "1024 files open, enough for 384 PCs")
    limits = Limits(512, 1024)
    monkeypatch.setattr(resource, "getrlimit", limits.get)
    monkeypatch.setattr(resource, "setrlimit", limits.set)
    assert allow_many_files() == 1024


async def test_a_tls_link_reads_through_a_small_buffer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sslproto.SSLProtocol, "max_size", sslproto.SSLProtocol.max_size)  # restored afterwards
    shrink_tls_buffers()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    loop = asyncio.get_running_loop()
    link = sslproto.SSLProtocol(loop, asyncio.Protocol(), context, loop.create_future(), server_side=True)
    assert len(link.get_buffer(1 << 20)) == TLS_BUFFER_BYTES
    assert link._app_transport is not None
    link._app_transport.close()
