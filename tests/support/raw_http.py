"""HTTP as bytes on a socket, for clients that behave badly: slow, half, wrong, gone."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncGenerator, Mapping
from typing import NamedTuple, Self
from urllib.parse import urlsplit

BUFFER_BYTES = 4096
"""A client that stops reading is felt by the server after a few times as much."""


class Head(NamedTuple):
    """The beginning of an answer; names of headers are in small letters."""

    status: int
    headers: dict[str, str]


class Connection:
    """One connection to a server; answers are read one after the other. Made by `open`."""

    def __init__(self, host: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._host, self._reader, self._writer = host, reader, writer
        self._head = Head(0, {})

    @classmethod
    async def open(cls, url: str, tls: ssl.SSLContext | None = None, *, small: bool = False) -> Self:
        """Connect. A `small` connection takes hardly anything that its client does not read."""
        parts = urlsplit(url)
        link = socket.socket()
        link.setblocking(False)
        try:
            if small:
                link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
            await asyncio.get_running_loop().sock_connect(link, (parts.hostname, parts.port))
            name = parts.hostname if tls is not None else None
            reader, writer = await asyncio.open_connection(
                sock=link, ssl=tls, server_hostname=name, limit=BUFFER_BYTES if small else 1 << 16
            )
        except BaseException:
            link.close()
            raise
        return cls(parts.netloc, reader, writer)

    async def send(
        self,
        path: str,
        body: bytes = b"",
        *,
        method: str = "POST",
        headers: Mapping[str, str] | None = None,
        upto: int | None = None,
    ) -> None:
        """Send a request, or of its bytes the first `upto`. Raises OSError."""
        fields = {"Host": self._host, "Content-Type": "application/json", "Content-Length": str(len(body))}
        lines = [f"{name}: {value}" for name, value in (fields | dict(headers or {})).items()]
        data = "\r\n".join([f"{method} {path} HTTP/1.1", *lines, "", ""]).encode() + body
        self._writer.write(data[:upto])
        await self._writer.drain()

    async def send_chunked(self, path: str, chunks: bytes, *, headers: Mapping[str, str] | None = None) -> None:
        """Send a request whose length is not said; `chunks` are as they travel. Raises OSError."""
        fields = {"Host": self._host, "Transfer-Encoding": "chunked"} | dict(headers or {})
        lines = [f"{name}: {value}" for name, value in fields.items()]
        self._writer.write("\r\n".join([f"POST {path} HTTP/1.1", *lines, "", ""]).encode() + chunks)
        await self._writer.drain()

    async def head(self) -> Head:
        """Read the beginning of the next answer. Raises OSError or EOFError."""
        first, *lines = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        pairs = (line.partition(":") for line in lines if line)
        headers = {name.lower(): value.strip() for name, _, value in pairs}
        self._head = Head(int(first.split()[1]), headers)
        return self._head

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """Read the answer's body as it comes. Raises OSError, or EOFError when it ends too early."""
        headers = self._head.headers
        if headers.get("transfer-encoding") != "chunked":
            yield await self._reader.readexactly(int(headers.get("content-length", "0")))
            return
        while size := int(await self._reader.readuntil(b"\r\n"), 16):
            yield (await self._reader.readexactly(size + 2))[:-2]
        await self._reader.readexactly(2)

    async def body(self) -> bytes:
        """Read the answer's body to its end. Raises OSError or EOFError."""
        return b"".join([piece async for piece in self.pieces()])

    async def ended(self) -> bool:
        """Wait until the server closes the connection; False: it says something instead."""
        try:
            return not await self._reader.read(1)
        except OSError:
            return True

    def abort(self) -> None:
        """Be gone without a farewell."""
        self._writer.transport.abort()

    async def close(self) -> None:
        """Close it. Safe to call again."""
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
