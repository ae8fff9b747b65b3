"""A question to the admin routes as a value: AdminClient and the windows carry it out, each in its own way.

No I/O here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from console.api.http import ErrorEnvelope
from console.errors import ClientError, ServiceRefused, ServiceUnreachable

SILENCE_S = 60.0
"""How long an answer may take where nothing else is said."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One request with one answer: `path` is below the server's root, `read` turns the body into the answer."""

    method: str
    path: str
    read: Callable[[bytes], T]
    body: bytes | None = None
    silence_s: float = SILENCE_S


@dataclass(frozen=True, slots=True)
class LineCall(Generic[T]):
    """One request whose answer comes line by line, each read by `read`; `ends` says whether one may be the last."""

    method: str
    path: str
    read: Callable[[bytes], T]
    body: bytes | None = None
    silence_s: float = SILENCE_S
    ends: Callable[[T | None], bool] = lambda _: True
    cut_off: str = ""
    """What to say when the answer ended early."""


def unreachable(url: str, error: Exception) -> ServiceUnreachable:
    """Return the error for a service that does not answer."""
    return ServiceUnreachable(
        f"The console at {url} does not answer ({type(error).__name__}); start it with: fallow-console serve"
    )


def refusal_of(url: str, status: int, body: bytes) -> ServiceRefused:
    """Return the error that an answer with an HTTP status of 400 or more stands for."""
    try:
        said = msgspec.json.decode(body, type=ErrorEnvelope).error
    except msgspec.MsgspecError:
        return ServiceRefused(f"The server at {url} answered {status}, not like a Fallow console.", status=status)
    return ServiceRefused(said.message, status=status, code=said.code or "")


def answer_of(url: str, call: Call[T] | LineCall[T], body: bytes) -> T:
    """Read an answer, or one line of it. Raises ClientError."""
    try:
        return call.read(body)
    except msgspec.MsgspecError as error:
        raise ClientError(f"The console at {url} gave an answer that is not understood: {error}.") from None
