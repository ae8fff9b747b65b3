"""A small typed client of the admin routes, for the command line, the demo and the windows. Blocking calls.

with AdminClient.for_data_folder(folder) as console:
    for agent in console.agents(): ...
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypeVar
from urllib.parse import quote

import httpx2
import msgspec

from agent.volunteer.wishes import PlainValue
from console.api.admin import types as wire
from console.api.admin.measured import MeasuredView
from console.api.admin.plan_types import Answers, PlanRequest, Plans, Question
from console.api.http import ErrorEnvelope
from console.data import ServiceFile, admin_key_path, service_file_path
from console.errors import ClientError, ServiceRefused, ServiceUnreachable
from console.fleet.delivery import DeliveryEvent
from console.registry.chain import Checked
from console.registry.records import ApiKey, AuditEntry, InviteRecord, Role, Scope, User

TIMEOUT = httpx2.Timeout(10.0, connect=3.0, read=60.0)
DEPLOY_SILENCE_S = 900.0
"""A deployment reports while it fetches and loads; a PC silent for longer than this is given up by the service."""

DELIVERY_SILENCE_S = 13 * 3600.0
"""A PC may take a night to fetch a model; the service gives it up before this."""

T = TypeVar("T")


class _ModelReadiness(msgspec.Struct, frozen=True):
    model: str
    ready: bool


class _Readiness(msgspec.Struct, frozen=True):
    models: list[_ModelReadiness]


class AdminClient:
    """Talks to one running service. Raises ServiceUnreachable or ServiceRefused. Not for use by several threads."""

    def __init__(self, url: str, key: str, *, authority: Path | None = None) -> None:
        """`authority` is the PEM of the fleet's CA when `url` is https."""
        verify = ssl.create_default_context(cafile=authority) if authority is not None else True
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._http = httpx2.Client(base_url=url, headers=headers, timeout=TIMEOUT, verify=verify, trust_env=False)
        self._url = url

    @classmethod
    def for_data_folder(cls, folder: Path) -> Self:
        """Find the service of a data folder on this PC and its admin key. Raises ServiceUnreachable."""
        try:
            service = msgspec.json.decode(service_file_path(folder).read_bytes(), type=ServiceFile)
            key = admin_key_path(folder).read_text("utf-8").strip()
        except FileNotFoundError:
            message = f"No console runs on {folder}; start it with: fallow-console serve"
            raise ServiceUnreachable(message) from None
        except (OSError, ValueError, msgspec.MsgspecError) as error:
            raise ClientError(f"The console's files in {folder} cannot be read: {error}.") from None
        authority = Path(service.authority_file) if service.api_url.startswith("https") else None
        return cls(service.api_url, key, authority=authority)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def create_invite(
        self, *, uses: int = 1, hours: float = 24.0, auto_approve: bool = False, hint: str = "", **rule: Any
    ) -> wire.Invite:
        """Make an invite; `rule` may be `tags`, `networks`, `names` and `keyring` of wire.NewInvite."""
        body = wire.NewInvite(uses, hours, auto_approve, hint, **rule)
        return self._call("POST", "/invites", wire.Invite, body)

    def invites(self) -> list[InviteRecord]:
        return self._call("GET", "/invites", wire.Invites).invites

    def revoke_invite(self, token_id: str) -> None:
        self._call("DELETE", f"/invites/{_part(token_id)}", wire.Done)

    def agents(self) -> list[wire.Agent]:
        return self._call("GET", "/agents", wire.Agents).agents

    def approve(self, device_id: str) -> None:
        self._change(device_id, "approve")

    def deny(self, device_id: str, *, reason: str = "") -> None:
        self._change(device_id, "deny", wire.Reason(reason))

    def suspend(self, device_id: str, *, reason: str = "") -> None:
        self._change(device_id, "suspend", wire.Reason(reason))

    def resume(self, device_id: str) -> None:
        self._change(device_id, "resume")

    def revoke(
        self, device_id: str, *, ban: bool = False, how: Literal["evict", "ban", "retire"] = "evict", reason: str = ""
    ) -> None:
        self._change(device_id, "revoke", wire.Revocation(ban, how, reason))

    def set_tags(self, device_id: str, tags: list[str]) -> None:
        self._change(device_id, "tags", wire.Tags(tags))

    def merge(self, device_id: str, former: str) -> None:
        self._change(device_id, "merge", wire.Merge(former))

    def _change(self, device_id: str, what: str, body: msgspec.Struct | None = None) -> None:
        self._call("POST", f"/agents/{_part(device_id)}/{what}", wire.Done, body)

    def measured(self, device_id: str) -> MeasuredView:
        return self._call("GET", f"/agents/{_part(device_id)}/measured", MeasuredView)

    def authority(self) -> wire.AuthorityView:
        return self._call("GET", "/authority", wire.AuthorityView)

    def rotate_authority(self, *, at_once: bool = False) -> wire.AuthorityView:
        return self._call("POST", "/authority/rotate", wire.AuthorityView, wire.Rotation(at_once))

    def policy(self) -> wire.PolicyView:
        return self._call("GET", "/policy", wire.PolicyView)

    def change_policy(self, values: dict[str, PlainValue], *, tag: str = "") -> wire.PolicyView:
        return self._call("POST", "/policy", wire.PolicyView, wire.PolicyChange(values, tag))

    def libraries(self) -> list[wire.Library]:
        return self._call("GET", "/libraries", wire.Libraries).libraries

    def add_library(self, folder: Path) -> wire.Library:
        return self._call("POST", "/libraries", wire.Library, wire.NewLibrary(str(folder.absolute())), silence_s=600)

    def deploy(self, request: wire.DeployRequest) -> Iterator[wire.DeployEvent]:
        """Start a deployment and yield its events; the last one is Ready or Broken.

        Leaving early does not stop the deployment.
        """
        decoder = msgspec.json.Decoder(wire.DeployEvent)
        timeout = httpx2.Timeout(10.0, read=DEPLOY_SILENCE_S)
        last: wire.DeployEvent | None = None
        for line in self._lines("POST", "/deployments", msgspec.json.encode(request), timeout):
            last = decoder.decode(line)
            yield last
        if not isinstance(last, wire.Ready | wire.Broken):
            raise ServiceUnreachable("The console went away during the deployment; see: fallow-console status")

    def deliver(self, request: wire.DeliveryRequest) -> Iterator[DeliveryEvent]:
        """Bring a model's layers to PCs in rings and yield the events; the last one is DeliveryEnded.

        Leaving early does not stop the delivery; asking again follows it.
        """
        timeout = httpx2.Timeout(10.0, read=DELIVERY_SILENCE_S)
        decoder = msgspec.json.Decoder(DeliveryEvent)
        for line in self._lines("POST", "/deliveries", msgspec.json.encode(request), timeout):
            yield decoder.decode(line)

    def deliveries(self) -> list[wire.DeliveryView]:
        return self._call("GET", "/deliveries", wire.Deliveries).deliveries

    def stop_delivery(self, model: str) -> None:
        self._call("DELETE", f"/deliveries/{quote(model, safe='/')}", wire.Done)

    def plan(self, asked: PlanRequest) -> Plans:
        return self._call("POST", "/plans", Plans, asked)

    def what_if(self, question: Question) -> Answers:
        return self._call("POST", "/plans/what-if", Answers, question, silence_s=300)

    def undeploy(self, model: str) -> None:
        self._call("DELETE", f"/deployments/{quote(model, safe='/')}", wire.Done)

    def status(self) -> wire.Status:
        return self._call("GET", "/status", wire.Status)

    @classmethod
    def log_in(cls, url: str, name: str, password: str, *, authority: Path | None = None) -> Self:
        """Buy a session with a password. Raises ServiceRefused (401, 429) or ServiceUnreachable."""
        with cls(url, "", authority=authority) as nobody:
            session = nobody._call("POST", "/login", wire.Session, wire.Login(name, password))
        return cls(url, session.token, authority=authority)

    def log_out(self) -> None:
        """End the session; an API key stays what it is."""
        self._call("POST", "/logout", wire.Done)

    def who_am_i(self) -> wire.Me:
        return self._call("GET", "/me", wire.Me)

    def change_own_password(self, password: str, new_password: str) -> None:
        self._call("POST", "/me/password", wire.Done, wire.OwnPassword(password, new_password))

    def users(self) -> list[User]:
        return self._call("GET", "/users", wire.Users).users

    def create_user(self, name: str, *, role: Role = "user", password: str | None = None) -> User:
        return self._call("POST", "/users", User, wire.NewUser(name, role, password))

    def change_user(self, name: str, change: wire.UserChange) -> User:
        return self._call("PATCH", f"/users/{_part(name)}", User, change)

    def readiness(self) -> set[str]:
        """Return the models that let a real token through all their stages just now."""
        try:
            response = self._http.get("/readyz")
        except httpx2.TransportError as error:
            raise self._unreachable(error) from None
        if response.status_code not in {200, 503}:
            raise self._refusal(response)
        models = msgspec.json.decode(response.content, type=_Readiness).models
        return {model.model for model in models if model.ready}

    def create_key(
        self,
        name: str,
        *,
        scope: Scope = "chat",
        days: float | None = None,
        user: str = "",
        limits: wire.Limits | None = None,
    ) -> wire.Key:
        given = msgspec.structs.asdict(limits or wire.Limits())
        return self._call("POST", "/keys", wire.Key, wire.NewKey(name=name, scope=scope, days=days, user=user, **given))

    def keys(self) -> list[ApiKey]:
        return self._call("GET", "/keys", wire.Keys).keys

    def limit_key(self, key_id: str, limits: wire.Limits) -> ApiKey:
        return self._call("PATCH", f"/keys/{_part(key_id)}", ApiKey, limits)

    def revoke_key(self, key_id: str) -> None:
        self._call("DELETE", f"/keys/{_part(key_id)}", wire.Done)

    def audit(self, *, limit: int = 100, before: int = 0, search: str = "") -> list[AuditEntry]:
        path = f"/audit?limit={limit}&before={before}&search={_part(search)}"
        return self._call("GET", path, wire.Audit).entries

    def verify_audit(self, sequence: int = 0, known_hash: str = "") -> Checked:
        """Let the console check its whole log. Raises ServiceRefused with code `audit_broken`."""
        return self._call("POST", "/audit/verify", Checked, wire.VerifyAudit(sequence, known_hash), silence_s=600)

    def export_audit(self) -> Iterator[bytes]:
        """Yield the whole log, one JSON object a line, the oldest entry first."""
        yield from self._lines("GET", "/audit/export", None, TIMEOUT)

    def _lines(self, method: str, path: str, content: bytes | None, timeout: httpx2.Timeout) -> Iterator[bytes]:
        """Yield the lines of an answer as they come."""
        try:
            with self._http.stream(method, f"/admin/v1{path}", content=content, timeout=timeout) as response:
                if response.is_error:
                    response.read()
                    raise self._refusal(response)
                for line in response.iter_lines():
                    if line:
                        yield line.encode()
        except httpx2.TransportError as error:
            raise self._unreachable(error) from None

    def _call(
        self, method: str, path: str, answer: type[T], body: msgspec.Struct | None = None, *, silence_s: float = 60.0
    ) -> T:
        content = None if body is None else msgspec.json.encode(body)
        timeout = httpx2.Timeout(10.0, read=silence_s)
        try:
            response = self._http.request(method, f"/admin/v1{path}", content=content, timeout=timeout)
        except httpx2.TransportError as error:
            raise self._unreachable(error) from None
        if response.is_error:
            raise self._refusal(response)
        try:
            return msgspec.json.decode(response.content, type=answer)
        except msgspec.MsgspecError as error:
            raise ClientError(f"The console at {self._url} gave an answer that is not understood: {error}.") from None

    def _unreachable(self, error: httpx2.TransportError) -> ServiceUnreachable:
        return ServiceUnreachable(
            f"The console at {self._url} does not answer ({type(error).__name__}); start it with: fallow-console serve"
        )

    def _refusal(self, response: httpx2.Response) -> ServiceRefused:
        try:
            body = msgspec.json.decode(response.content, type=ErrorEnvelope).error
        except msgspec.MsgspecError:
            message = f"The server at {self._url} answered {response.status_code}, not like a Fallow console."
            return ServiceRefused(message, status=response.status_code)
        return ServiceRefused(body.message, status=response.status_code, code=body.code or "")


def _part(text: str) -> str:
    return quote(text, safe="")
