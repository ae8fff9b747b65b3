"""A question to the admin routes as a value, and what its answer means: AdminClient and the windows carry it out.

No I/O here.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import httpx2
import msgspec

from console.addresses import is_this_pc
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
    body: bytes | None = field(default=None, repr=False)  # passwords are in it
    silence_s: float = SILENCE_S


@dataclass(frozen=True, slots=True)
class LineCall(Generic[T]):
    """One request whose answer comes line by line, each read by `read`; `ends` says whether one may be the last."""

    method: str
    path: str
    read: Callable[[bytes], T]
    body: bytes | None = field(default=None, repr=False)  # passwords are in it
    silence_s: float = SILENCE_S
    ends: Callable[[T | None], bool] = lambda _: True
    cut_off: str = ""
    """What to say when the answer ended early."""


class Lines:
    """Cuts an answer into its lines, at line feeds alone: texts in JSON may hold what else ends a line elsewhere."""

    def __init__(self) -> None:
        self._begun: list[bytes] = []

    def take(self, data: bytes) -> list[bytes]:
        """Return the lines that are whole now; empty ones are left out."""
        first, *others = data.split(b"\n")
        self._begun.append(first)
        if not others:
            return []
        whole = [b"".join(self._begun), *others[:-1]]
        self._begun = [others[-1]]
        return [line for line in whole if line]

    def end(self) -> list[bytes]:
        """Return what came behind the last line feed, if anything."""
        last, self._begun = b"".join(self._begun), []
        return [last] if last else []


def not_answered(url: str, error: httpx2.RequestError) -> ClientError:
    """Return the error for a question that got no answer, or one that cannot be read."""
    if not isinstance(error, httpx2.TransportError):
        return _not_understood(url, error)
    untrusted = next((one for one in _causes(error) if isinstance(one, ssl.SSLCertVerificationError)), None)
    if untrusted is not None:
        return ServiceUnreachable(
            f"The certificate of the console at {url} is not trusted ({untrusted.verify_message}); choose the file "
            "authorities.pem of its data folder."
        )
    step = "start it with: fallow-console serve" if is_this_pc(url) else "see whether it runs, and the network to it."
    return ServiceUnreachable(f"The console at {url} does not answer ({type(error).__name__}); {step}")


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and what led to it."""
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        yield cause
        cause = cause.__cause__ or cause.__context__


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
        raise _not_understood(url, error) from None


def _not_understood(url: str, error: Exception) -> ClientError:
    return ClientError(f"The console at {url} gave an answer that is not understood: {error}.")
