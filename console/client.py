"""A small typed client of the admin routes, for the command line and the demo. Blocking calls.

with AdminClient.for_data_folder(folder) as console:
    for agent in console.agents(): ...
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Concatenate, ParamSpec, Self, TypeVar

import httpx2
import msgspec

from console import calls, calls_releases
from console.access import Access, access_of
from console.call import SILENCE_S, Call, LineCall, Lines, answer_of, not_answered, refusal_of
from console.errors import ServiceUnreachable

TIMEOUT = httpx2.Timeout(10.0, connect=3.0, read=SILENCE_S)

P = ParamSpec("P")
T = TypeVar("T")


class _ModelReadiness(msgspec.Struct, frozen=True):
    model: str
    ready: bool


class _Readiness(msgspec.Struct, frozen=True):
    models: list[_ModelReadiness]


def _asking(make: Callable[P, Call[T]]) -> Callable[Concatenate[AdminClient, P], T]:
    """Return a method that makes a call and carries it out."""

    @functools.wraps(make)
    def ask(self: AdminClient, /, *arguments: P.args, **named: P.kwargs) -> T:
        return self.ask(make(*arguments, **named))

    return ask


def _following(make: Callable[P, LineCall[T]]) -> Callable[Concatenate[AdminClient, P], Iterator[T]]:
    @functools.wraps(make)
    def follow(self: AdminClient, /, *arguments: P.args, **named: P.kwargs) -> Iterator[T]:
        return self.follow(make(*arguments, **named))

    return follow


class AdminClient:
    """Talks to one running service. Raises ClientError. Not for use by several threads."""

    def __init__(self, url: str, key: str, *, authority: Path | None = None) -> None:
        """`authority` is the PEM of the fleet's CA when `url` is https. Raises ClientError for what cannot be used."""
        self._access = Access(url, key, authority)
        self._http = httpx2.Client(
            base_url=self._access.address(),
            headers=self._access.headers(),
            timeout=TIMEOUT,
            verify=self._access.trust(),
            trust_env=False,
        )
        self.url = url

    @classmethod
    def for_data_folder(cls, folder: Path) -> Self:
        """Find the service of a data folder on this PC and its admin key. Raises as `access_of` does."""
        access = access_of(folder)
        return cls(access.url, access.token, authority=access.authority)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    create_invite = _asking(calls.create_invite)
    invites = _asking(calls.invites)
    revoke_invite = _asking(calls.revoke_invite)
    agents = _asking(calls.agents)
    approve = _asking(calls.approve)
    deny = _asking(calls.deny)
    suspend = _asking(calls.suspend)
    resume = _asking(calls.resume)
    revoke = _asking(calls.revoke)
    set_tags = _asking(calls.set_tags)
    merge = _asking(calls.merge)
    measured = _asking(calls.measured)
    log_of = _asking(calls.log_of)
    authority = _asking(calls.authority)
    rotate_authority = _asking(calls.rotate_authority)
    policy = _asking(calls.policy)
    change_policy = _asking(calls.change_policy)
    releases = _asking(calls_releases.releases)
    add_release = _asking(calls_releases.add_release)
    set_ring = _asking(calls_releases.set_ring)
    withdraw_release = _asking(calls_releases.withdraw_release)
    libraries = _asking(calls.libraries)
    add_library = _asking(calls.add_library)
    remove_library = _asking(calls.remove_library)
    begin_build = _asking(calls.begin_build)
    estimate_build = _asking(calls.estimate_build)
    builds = _asking(calls.builds)
    build = _asking(calls.build)
    pause_build = _asking(calls.pause_build)
    resume_build = _asking(calls.resume_build)
    cancel_build = _asking(calls.cancel_build)
    publish_build = _asking(calls.publish_build)
    deliveries = _asking(calls.deliveries)
    stop_delivery = _asking(calls.stop_delivery)
    plan = _asking(calls.plan)
    check_plan = _asking(calls.check_plan)
    what_if = _asking(calls.what_if)
    undeploy = _asking(calls.undeploy)
    status = _asking(calls.status)
    answer_times = _asking(calls.answer_times)
    log_out = _asking(calls.log_out)
    who_am_i = _asking(calls.who_am_i)
    change_own_password = _asking(calls.change_own_password)
    users = _asking(calls.users)
    create_user = _asking(calls.create_user)
    change_user = _asking(calls.change_user)
    create_key = _asking(calls.create_key)
    keys = _asking(calls.keys)
    limit_key = _asking(calls.limit_key)
    revoke_key = _asking(calls.revoke_key)
    audit = _asking(calls.audit)
    verify_audit = _asking(calls.verify_audit)
    deploy = _following(calls.deploy)
    deliver = _following(calls.deliver)
    export_audit = _following(calls.export_audit)

    @classmethod
    def log_in(cls, url: str, name: str, password: str, *, authority: Path | None = None) -> Self:
        """Buy a session with a password. Raises ServiceRefused (401, 429) or ServiceUnreachable."""
        with cls(url, "", authority=authority) as nobody:
            session = nobody.ask(calls.log_in(name, password))
        return cls(url, session.token, authority=authority)

    def readiness(self) -> set[str]:
        """Return the models that let a real token through all their stages just now."""
        try:
            response = self._http.get("/readyz")
        except httpx2.RequestError as error:
            raise not_answered(self.url, error) from None
        if response.status_code not in {200, 503}:
            raise refusal_of(self.url, response.status_code, response.content)
        models = msgspec.json.decode(response.content, type=_Readiness).models
        return {model.model for model in models if model.ready}

    def ask(self, call: Call[T]) -> T:
        """Carry out a call. Raises ServiceUnreachable, ServiceRefused, or ClientError for an odd answer."""
        timeout = httpx2.Timeout(10.0, read=call.silence_s)
        try:
            response = self._http.request(call.method, call.path, content=call.body, timeout=timeout)
        except httpx2.RequestError as error:
            raise not_answered(self.url, error) from None
        if response.is_error:
            raise refusal_of(self.url, response.status_code, response.content)
        return answer_of(self.url, call, response.content)

    def follow(self, call: LineCall[T]) -> Iterator[T]:
        """Yield what the lines of an answer say, as they come. Raises as `ask` does."""
        timeout = httpx2.Timeout(10.0, read=call.silence_s)
        last: T | None = None
        try:
            with self._http.stream(call.method, call.path, content=call.body, timeout=timeout) as response:
                if response.is_error:
                    raise refusal_of(self.url, response.status_code, response.read())
                lines = Lines()
                for data in response.iter_bytes():
                    for line in lines.take(data):
                        last = answer_of(self.url, call, line)
                        yield last
                for line in lines.end():
                    last = answer_of(self.url, call, line)
                    yield last
        except httpx2.RequestError as error:
            raise not_answered(self.url, error) from None
        if not call.ends(last):
            raise ServiceUnreachable(call.cut_off)
