"""What can be asked of the admin routes: each function makes a Call, and does nothing by itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, TypeVar
from urllib.parse import quote

import msgspec

from agent.volunteer.wishes import PlainValue
from console.api.admin import build_types
from console.api.admin import types as wire
from console.api.admin.guard import PREFIX
from console.api.admin.lately import LatelyView, LogView
from console.api.admin.measured import MeasuredView
from console.api.admin.plan_types import Answers, PlanRequest, Plans, Question
from console.call import SILENCE_S, Call, LineCall
from console.fleet.delivery import DeliveryEvent
from console.planner.given import CheckedPlan
from console.registry.chain import Checked
from console.registry.records import ApiKey, AuditEntry, InviteRecord, Role, Scope, User

DEPLOY_SILENCE_S = 900.0
"""A deployment reports while it fetches and loads; a PC silent for longer than this is given up by the service."""
DELIVERY_SILENCE_S = 13 * 3600.0
"""A PC may take a night to fetch a model; the service gives it up before this."""

T = TypeVar("T")


def call(
    method: str, path: str, answer: type[T], body: msgspec.Struct | None = None, *, silence_s: float = SILENCE_S
) -> Call[T]:
    """Make the call of a route whose whole answer is wanted."""
    return _picked(method, path, answer, lambda whole: whole, body, silence_s=silence_s)


def _picked(
    method: str,
    path: str,
    answer: type[Any],
    pick: Callable[[Any], T],
    body: msgspec.Struct | None = None,
    *,
    silence_s: float = SILENCE_S,
) -> Call[T]:
    content = None if body is None else msgspec.json.encode(body)
    return Call(method, PREFIX + path, lambda raw: pick(msgspec.json.decode(raw, type=answer)), content, silence_s)


def _done(method: str, path: str, body: msgspec.Struct | None = None) -> Call[None]:
    return _picked(method, path, wire.Done, lambda _: None, body)


def part(text: str) -> str:
    """Write a name as one part of a path."""
    return quote(text, safe="")


def _model(text: str) -> str:
    return quote(text, safe="/")


def create_invite(
    *, uses: int = 1, hours: float = 24.0, auto_approve: bool = False, hint: str = "", **rule: Any
) -> Call[wire.Invite]:
    """Make an invite; `rule` may be `tags`, `networks`, `names` and `keyring` of wire.NewInvite."""
    return call("POST", "/invites", wire.Invite, wire.NewInvite(uses, hours, auto_approve, hint, **rule))


def invites() -> Call[list[InviteRecord]]:
    """List all invites, without their secrets."""
    return _picked("GET", "/invites", wire.Invites, lambda all_: all_.invites)


def revoke_invite(token_id: str) -> Call[None]:
    """Let nobody use an invite any more."""
    return _done("DELETE", f"/invites/{part(token_id)}")


def agents() -> Call[list[wire.Agent]]:
    """List the fleet."""
    return _picked("GET", "/agents", wire.Agents, lambda all_: all_.agents)


def approve(device_id: str) -> Call[None]:
    """Let a PC in."""
    return _change(device_id, "approve")


def deny(device_id: str, *, reason: str = "") -> Call[None]:
    """Refuse a PC that waits."""
    return _change(device_id, "deny", wire.Reason(reason))


def suspend(device_id: str, *, reason: str = "") -> Call[None]:
    """Let a PC do nothing until it is resumed."""
    return _change(device_id, "suspend", wire.Reason(reason))


def resume(device_id: str) -> Call[None]:
    """Let a suspended PC work again."""
    return _change(device_id, "resume")


def revoke(
    device_id: str, *, ban: bool = False, how: Literal["evict", "ban", "retire"] = "evict", reason: str = ""
) -> Call[None]:
    """Take a PC out of the fleet."""
    return _change(device_id, "revoke", wire.Revocation(ban, how, reason))


def set_tags(device_id: str, tags: list[str]) -> Call[None]:
    """Give a PC these tags and no others."""
    return _change(device_id, "tags", wire.Tags(tags))


def merge(device_id: str, former: str) -> Call[None]:
    """Let a PC take over from its former record."""
    return _change(device_id, "merge", wire.Merge(former))


def _change(device_id: str, what: str, body: msgspec.Struct | None = None) -> Call[None]:
    return _done("POST", f"/agents/{part(device_id)}/{what}", body)


def lately(device_id: str) -> Call[LatelyView]:
    """Return how a PC was in the last hour."""
    return call("GET", f"/agents/{part(device_id)}/lately", LatelyView)


def log_of(device_id: str) -> Call[LogView]:
    """Return the last lines of a PC's log; it has to be connected."""
    return call("GET", f"/agents/{part(device_id)}/log", LogView)


def measured(device_id: str) -> Call[MeasuredView]:
    """Return what was measured on a PC."""
    return call("GET", f"/agents/{part(device_id)}/measured", MeasuredView)


def authority() -> Call[wire.AuthorityView]:
    """Return the fleet's certificate authority."""
    return call("GET", "/authority", wire.AuthorityView)


def rotate_authority(*, at_once: bool = False) -> Call[wire.AuthorityView]:
    """Begin to change the fleet's root."""
    return call("POST", "/authority/rotate", wire.AuthorityView, wire.Rotation(at_once))


def policy() -> Call[wire.PolicyView]:
    """Return the administrator's policy."""
    return call("GET", "/policy", wire.PolicyView)


def change_policy(values: dict[str, PlainValue], *, tag: str = "") -> Call[wire.PolicyView]:
    """Change the policy of all PCs, or of those with a tag."""
    return call("POST", "/policy", wire.PolicyView, wire.PolicyChange(values, tag))


def libraries() -> Call[list[wire.Library]]:
    """List the layer libraries."""
    return _picked("GET", "/libraries", wire.Libraries, lambda all_: all_.libraries)


def add_library(folder: Path) -> Call[wire.Library]:
    """Add a library in a folder of this PC, which is the console's, too."""
    return add_library_at(str(folder.absolute()))


def add_library_at(path: str) -> Call[wire.Library]:
    """Add a library in a folder of the console's PC, by its path there."""
    return call("POST", "/libraries", wire.Library, wire.NewLibrary(path), silence_s=600)


def remove_library(digest: str) -> Call[None]:
    """Forget a library; its files stay. Refused while a deployment uses it."""
    return _done("DELETE", f"/libraries/{part(digest)}")


def folder(path: str = "") -> Call[build_types.Folder]:
    """List a folder of the console's PC; empty: the one for models."""
    return call("GET", f"/folders?path={part(path)}", build_types.Folder)


def estimate_build(request: build_types.BuildRequest) -> Call[build_types.BuildEstimate]:
    """Ask what a build would need, and what is against it."""
    return call("POST", "/builds/estimate", build_types.BuildEstimate, request)


def begin_build(request: build_types.BuildRequest) -> Call[build_types.Build]:
    """Begin a build. Refused with code `build_refused`."""
    return call("POST", "/builds", build_types.Build, request)


def builds() -> Call[build_types.Builds]:
    """List the builds, the latest first."""
    return call("GET", "/builds", build_types.Builds)


def build(build_id: str) -> Call[build_types.BuildDetail]:
    """Return one build and the end of its log."""
    return call("GET", f"/builds/{part(build_id)}", build_types.BuildDetail)


def pause_build(build_id: str) -> Call[build_types.Build]:
    """Let a build end after the layer it is at; asked again: at once."""
    return call("POST", f"/builds/{part(build_id)}/pause", build_types.Build)


def resume_build(build_id: str) -> Call[build_types.Build]:
    """Let a build go on."""
    return call("POST", f"/builds/{part(build_id)}/resume", build_types.Build)


def cancel_build(build_id: str, *, discard: bool = False) -> Call[build_types.Build]:
    """End a build; `discard`: remove the layers it finished, too."""
    body = build_types.CancelBuild(discard)
    return call("POST", f"/builds/{part(build_id)}/cancel", build_types.Build, body)


def publish_build(build_id: str) -> Call[build_types.Build]:
    """Make a finished library one that can be deployed."""
    return call("POST", f"/builds/{part(build_id)}/publish", build_types.Build)


def deploy(request: wire.DeployRequest) -> LineCall[wire.DeployEvent]:
    """Start a deployment; the last event is Ready or Broken. Leaving early does not stop it."""
    decoder = msgspec.json.Decoder(wire.DeployEvent)
    return LineCall(
        "POST",
        f"{PREFIX}/deployments",
        decoder.decode,
        msgspec.json.encode(request),
        DEPLOY_SILENCE_S,
        lambda last: isinstance(last, wire.Ready | wire.Broken),
        "The console went away during the deployment; see: fallow-console status",
    )


def deliver(request: wire.DeliveryRequest) -> LineCall[DeliveryEvent]:
    """Bring a model's layers to PCs in rings; the last event is DeliveryEnded.

    Leaving early does not stop the delivery; asking again follows it.
    """
    decoder = msgspec.json.Decoder(DeliveryEvent)
    return LineCall("POST", f"{PREFIX}/deliveries", decoder.decode, msgspec.json.encode(request), DELIVERY_SILENCE_S)


def follow_delivery(model: str) -> LineCall[DeliveryEvent]:
    """Follow a delivery that is under way, from its beginning; none is begun. Refused with code `deploy_refused`."""
    decoder = msgspec.json.Decoder(DeliveryEvent)
    return LineCall("GET", f"{PREFIX}/deliveries/{_model(model)}", decoder.decode, silence_s=DELIVERY_SILENCE_S)


def deliveries() -> Call[list[wire.DeliveryView]]:
    """List the deliveries that run or ended lately."""
    return _picked("GET", "/deliveries", wire.Deliveries, lambda all_: all_.deliveries)


def stop_delivery(model: str) -> Call[None]:
    """Stop a delivery; what has arrived stays."""
    return _done("DELETE", f"/deliveries/{_model(model)}")


def plan(asked: PlanRequest) -> Call[Plans]:
    """Ask what the planner would do."""
    return call("POST", "/plans", Plans, asked)


def check_plan(request: wire.DeployRequest) -> Call[CheckedPlan]:
    """Ask what the `plan` of a request would cost and which rules it breaks; nothing is done."""
    return call("POST", "/plans/check", CheckedPlan, request)


def what_if(question: Question) -> Call[Answers]:
    """Ask which models the fleet could run at another time."""
    return call("POST", "/plans/what-if", Answers, question, silence_s=300)


def undeploy(model: str) -> Call[None]:
    """Take a model down."""
    return _done("DELETE", f"/deployments/{_model(model)}")


def status() -> Call[wire.Status]:
    """Return what the service says about itself."""
    return call("GET", "/status", wire.Status)


def performances() -> Call[wire.Performances]:
    """Return how fast each model answered in the last quarter of an hour."""
    return call("GET", "/performance", wire.Performances)


def answer_times(order: wire.AnswerOrder = "slowest", limit: int = 50) -> Call[list[wire.AnswerTime]]:
    """Return the slowest or the newest answers of the last hour, and where their time went."""
    return _picked("GET", f"/answers?order={order}&limit={limit}", wire.AnswerTimes, lambda all_: all_.answers)


def log_in(name: str, password: str) -> Call[wire.Session]:
    """Buy a session with a password. Refused with 401 or 429."""
    return call("POST", "/login", wire.Session, wire.Login(name, password))


def log_out() -> Call[None]:
    """End the session; an API key stays what it is."""
    return _done("POST", "/logout")


def who_am_i() -> Call[wire.Me]:
    """Return whose token this is, and what it may do."""
    return call("GET", "/me", wire.Me)


def change_own_password(password: str, new_password: str) -> Call[None]:
    """Change the password of who is logged in."""
    return _done("POST", "/me/password", wire.OwnPassword(password, new_password))


def users() -> Call[list[User]]:
    """List the people who may log in."""
    return _picked("GET", "/users", wire.Users, lambda all_: all_.users)


def create_user(name: str, *, role: Role = "user", password: str | None = None) -> Call[User]:
    """Let somebody log in."""
    return call("POST", "/users", User, wire.NewUser(name, role, password))


def change_user(name: str, change: wire.UserChange) -> Call[User]:
    """Change somebody's role, password or state."""
    return call("PATCH", f"/users/{part(name)}", User, change)


def create_key(
    name: str, *, scope: Scope = "chat", days: float | None = None, user: str = "", limits: wire.Limits | None = None
) -> Call[wire.Key]:
    """Make an API key; its secret is in the answer and nowhere else."""
    given = msgspec.structs.asdict(limits or wire.Limits())
    return call("POST", "/keys", wire.Key, wire.NewKey(name=name, scope=scope, days=days, user=user, **given))


def keys() -> Call[list[ApiKey]]:
    """List the API keys, without their secrets."""
    return _picked("GET", "/keys", wire.Keys, lambda all_: all_.keys)


def limit_key(key_id: str, limits: wire.Limits) -> Call[ApiKey]:
    """Change what a key may use."""
    return call("PATCH", f"/keys/{part(key_id)}", ApiKey, limits)


def revoke_key(key_id: str) -> Call[None]:
    """Let nobody use a key any more."""
    return _done("DELETE", f"/keys/{part(key_id)}")


def audit(*, limit: int = 100, before: int = 0, search: str = "") -> Call[list[AuditEntry]]:
    """List entries of the audit log, the latest first."""
    path = f"/audit?limit={limit}&before={before}&search={part(search)}"
    return _picked("GET", path, wire.Audit, lambda all_: all_.entries)


def verify_audit(sequence: int = 0, known_hash: str = "") -> Call[Checked]:
    """Let the console check its whole log. Refused with code `audit_broken`."""
    return call("POST", "/audit/verify", Checked, wire.VerifyAudit(sequence, known_hash), silence_s=600)


def export_audit() -> LineCall[bytes]:
    """Return the whole log, one JSON object a line, the oldest entry first."""
    return LineCall("GET", f"{PREFIX}/audit/export", bytes)
