"""Every HTTP route of the console, without and with the wrong credentials. A route that is not in the table fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

import console.service
from console.api.app import build_app
from console.data import admin_key_path
from console.registry.records import ROLE_SCOPES, Role
from console.registry.registry import Registry
from console.service import ConsoleService, ServiceSettings

PUBLIC, ANY = "public", "any"

TABLE: dict[tuple[str, str], str] = {
    ("GET", "/authority.pem"): PUBLIC,
    ("GET", "/healthz"): PUBLIC,
    ("POST", "/admin/v1/login"): PUBLIC,
    ("GET", "/readyz"): "chat",
    ("GET", "/metrics"): "view",
    ("GET", "/v1/models"): "chat",
    ("GET", "/v1/models/{model_id:path}"): "chat",
    ("POST", "/v1/chat/completions"): "chat",
    ("POST", "/v1/completions"): "chat",
    ("POST", "/v1/responses"): "chat",
    ("POST", "/v1/embeddings"): "chat",
    ("POST", "/v1/requests/{request_id}/cancel"): "chat",
    ("POST", "/tokenize"): "chat",
    ("POST", "/detokenize"): "chat",
    # The same text everywhere, without a secret, for tools that know no key.
    ("GET", "/openapi.json"): PUBLIC,
    ("POST", "/admin/v1/logout"): ANY,
    ("GET", "/admin/v1/me"): ANY,
    ("POST", "/admin/v1/me/password"): ANY,
    ("GET", "/admin/v1/status"): "view",
    ("GET", "/admin/v1/performance"): "view",
    ("GET", "/admin/v1/log-levels"): "admin",
    ("POST", "/admin/v1/log-levels"): "admin",
    ("GET", "/admin/v1/answers"): "view",
    ("GET", "/admin/v1/invites"): "view",
    ("POST", "/admin/v1/invites"): "operate",
    ("DELETE", "/admin/v1/invites/{token_id}"): "operate",
    ("GET", "/admin/v1/agents"): "view",
    ("GET", "/admin/v1/agents/{device_id}/measured"): "view",
    ("GET", "/admin/v1/agents/{device_id}/lately"): "view",
    ("GET", "/admin/v1/agents/{device_id}/log"): "operate",
    ("POST", "/admin/v1/agents/{device_id}/approve"): "operate",
    ("POST", "/admin/v1/agents/{device_id}/deny"): "operate",
    ("POST", "/admin/v1/agents/{device_id}/revoke"): "operate",
    ("GET", "/admin/v1/authority"): "view",
    ("POST", "/admin/v1/authority/rotate"): "admin",
    ("GET", "/admin/v1/policy"): "view",
    ("POST", "/admin/v1/policy"): "admin",
    ("GET", "/admin/v1/releases"): "view",
    ("POST", "/admin/v1/releases"): "admin",
    ("POST", "/admin/v1/releases/{release_id}/ring"): "admin",
    ("POST", "/admin/v1/releases/{release_id}/withdraw"): "admin",
    ("POST", "/admin/v1/plans"): "view",
    ("POST", "/admin/v1/plans/check"): "view",
    ("POST", "/admin/v1/plans/what-if"): "view",
    ("POST", "/admin/v1/agents/{device_id}/suspend"): "operate",
    ("POST", "/admin/v1/agents/{device_id}/resume"): "operate",
    ("POST", "/admin/v1/agents/{device_id}/tags"): "operate",
    ("POST", "/admin/v1/agents/{device_id}/merge"): "operate",
    ("GET", "/admin/v1/libraries"): "view",
    ("POST", "/admin/v1/libraries"): "operate",
    ("DELETE", "/admin/v1/libraries/{digest}"): "operate",
    ("GET", "/admin/v1/folders"): "operate",
    ("GET", "/admin/v1/builds"): "view",
    ("POST", "/admin/v1/builds"): "operate",
    ("POST", "/admin/v1/builds/estimate"): "operate",
    ("GET", "/admin/v1/builds/{build_id}"): "view",
    ("POST", "/admin/v1/builds/{build_id}/pause"): "operate",
    ("POST", "/admin/v1/builds/{build_id}/resume"): "operate",
    ("POST", "/admin/v1/builds/{build_id}/cancel"): "operate",
    ("POST", "/admin/v1/builds/{build_id}/publish"): "operate",
    ("GET", "/admin/v1/deployments"): "view",
    ("POST", "/admin/v1/deployments"): "operate",
    ("GET", "/admin/v1/deliveries"): "view",
    ("POST", "/admin/v1/deliveries"): "operate",
    ("GET", "/admin/v1/deliveries/{model:path}"): "view",
    ("DELETE", "/admin/v1/deliveries/{model:path}"): "operate",
    ("DELETE", "/admin/v1/deployments/{model:path}"): "operate",
    ("GET", "/admin/v1/users"): "admin",
    ("POST", "/admin/v1/users"): "admin",
    ("PATCH", "/admin/v1/users/{name}"): "admin",
    ("GET", "/admin/v1/keys"): "admin",
    ("POST", "/admin/v1/keys"): "admin",
    ("PATCH", "/admin/v1/keys/{key_id}"): "admin",
    ("DELETE", "/admin/v1/keys/{key_id}"): "admin",
    ("GET", "/admin/v1/audit"): "audit",
    ("GET", "/admin/v1/audit/export"): "audit",
    ("POST", "/admin/v1/audit/verify"): "audit",
}
"""What each route needs. Whoever adds a route decides it here, too, and says why when it is PUBLIC."""


class Console:
    """A running console with its routes, and a token for every role and scope."""

    def __init__(self, service: ConsoleService, routes: Sequence[BaseRoute], registry: Registry) -> None:
        self.url = service.api_url
        self.routes = {
            (method, route.path)
            for route in routes
            if isinstance(route, Route)
            for method in (route.methods or set()) - {"HEAD"}
        }
        self.kinds_of_routes = {type(route) for route in routes}
        self.registry = registry


@pytest.fixture
async def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Console]:
    seen: list[BaseRoute] = []

    def build(routes: Sequence[BaseRoute], **settings: Any) -> ASGIApp:
        seen.extend(routes)
        return build_app(routes, **settings)

    monkeypatch.setattr(console.service, "build_app", build)
    async with ConsoleService(ServiceSettings(folder=tmp_path, keyring=False)) as service:
        with Registry.open(tmp_path / "registry.sqlite") as registry:
            yield Console(service, seen, registry)


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def filled(path: str) -> str:
    return "/".join("x" if part.startswith("{") else part for part in path.split("/"))


def expect_error(response: httpx2.Response, status: int, what: object) -> None:
    assert response.status_code == status, what
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}, what
    assert error["type"] == "invalid_request_error", what
    assert ("WWW-Authenticate" in response.headers) == (status == 401), what


async def test_every_route_is_in_the_table(running: Console) -> None:
    assert running.kinds_of_routes == {Route}, "a mount or a websocket route would not be seen by these tests"
    assert running.routes == set(TABLE)


async def test_no_route_but_the_public_ones_answers_without_a_live_token(running: Console) -> None:
    keys, clock_s = running.registry.keys, 1.0
    revoked, expired = keys.create("revoked", ["admin"]), keys.create("old", ["admin"], expires_s=clock_s)
    keys.revoke(revoked[0].key_id)
    good = keys.create("good", ["admin"])[1]
    wrong = [
        {},
        {"Authorization": "Bearer"},
        {"Authorization": f"Basic {good}"},
        bearer("x"),
        bearer("flw-000000000000-" + "a" * 43),
        bearer(good[:-4] + "AAAA"),
        bearer(good.replace("flw", "fls")),
        bearer(revoked[1]),
        bearer(expired[1]),
        {"X-Api-Key": good},
        {"Cookie": f"session={good}"},
    ]
    async with httpx2.AsyncClient(base_url=running.url) as http:
        for (method, path), needs in TABLE.items():
            for headers in wrong if needs != PUBLIC else []:
                answer = await http.request(method, filled(path), headers=headers)
                expect_error(answer, 401, (method, path, headers))
            query = await http.request(method, f"{filled(path)}?key={good}&token={good}&access_token={good}")
            assert query.status_code == 401 or needs == PUBLIC, path


@pytest.mark.parametrize("kind", ["a key with one scope", "a key of somebody's with all scopes", "a login"])
async def test_every_route_answers_those_whose_role_or_scope_reaches_and_nobody_else(
    running: Console, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("console.registry.users.matches", lambda password, stored: True)
    async with httpx2.AsyncClient(base_url=running.url) as http:
        for who, scopes, token in tokens(running.registry, kind):
            for (method, path), needs in TABLE.items():
                if path.endswith("/logout") or needs == PUBLIC:
                    continue
                answer = await http.request(method, filled(path), headers=bearer(token))
                if needs == ANY or needs in scopes:
                    own_password = path.endswith("/me/password") and kind != "a login"
                    assert answer.status_code not in {401, 403} or own_password, (who, method, path)
                else:
                    expect_error(answer, 403, (who, method, path))
                    assert answer.json()["error"]["code"] == "insufficient_scope"


def tokens(registry: Registry, kind: str) -> list[tuple[str, set[str], str]]:
    everything: set[str] = set(ROLE_SCOPES["owner"])
    if kind == "a key with one scope":
        return [
            (scope, everything if scope == "admin" else {scope}, registry.keys.create(scope, [scope])[1])
            for scope in ROLE_SCOPES["owner"]
        ]
    made: list[tuple[str, set[str], str]] = []
    roles: list[Role] = ["owner", "operator", "auditor", "user"]
    for role in roles:
        registry.users.create(f"the-{role}", role)
        if kind == "a login":
            opened = registry.sessions.open(f"the-{role}", "")
            assert opened is not None
            token = opened[1]
        else:
            token = registry.keys.create(role, ["admin"], user=f"the-{role}")[1]
        scopes: set[str] = set(ROLE_SCOPES[role])
        made.append((role, scopes, token))
    return made


async def test_another_method_or_spelling_of_a_path_opens_nothing(running: Console) -> None:
    token = running.registry.keys.create("x", ["chat"])[1]
    async with httpx2.AsyncClient(base_url=running.url) as http:
        for path in ("/admin/v1/keys/", "//admin/v1/keys", "/admin/v1/../v1/keys", "/ADMIN/v1/keys", "/admin/v1"):
            answer = await http.get(path, headers=bearer(token))
            assert answer.status_code in {403, 404}, path
        for method in ("PUT", "OPTIONS", "TRACE"):
            answer = await http.request(method, "/admin/v1/keys", headers=bearer(token))
            assert answer.status_code == 405, method


async def test_logging_in_working_and_logging_out(running: Console, tmp_path: Path) -> None:
    owner = bearer(admin_key_path(tmp_path).read_text().strip())
    ada: dict[str, Any] = {"name": "ada", "password": "correct horse battery"}
    async with httpx2.AsyncClient(base_url=running.url) as http:
        made = await http.post("/admin/v1/users", json={**ada, "role": "operator"}, headers=owner)
        assert made.json()["has_password"] is True
        wrong = await http.post("/admin/v1/login", json={**ada, "password": "something else"})
        expect_error(wrong, 401, "login")
        assert wrong.json()["error"]["code"] == "invalid_login"
        session = (await http.post("/admin/v1/login", json=ada)).json()
        assert session["me"] == {
            "key_id": "user:ada", "user": "ada", "scopes": ["chat", "operate", "view"],
            "quota": {"streams": None, "tokens_per_day": None, "models": []},
        }  # fmt: skip
        mine = bearer(session["token"])
        invite = (await http.post("/admin/v1/invites", headers=mine)).json()
        changed = {"password": "not the present one", "new_password": "another long one"}
        assert (await http.post("/admin/v1/me/password", json=changed, headers=mine)).status_code == 403
        changed["password"] = ada["password"]
        assert (await http.post("/admin/v1/me/password", json=changed, headers=mine)).status_code == 200
        assert (await http.get("/admin/v1/me", headers=mine)).status_code == 401
        ada["password"] = changed["new_password"]
        mine = bearer((await http.post("/admin/v1/login", json=ada)).json()["token"])
        assert (await http.post("/admin/v1/logout", headers=mine)).status_code == 200
        assert (await http.get("/admin/v1/me", headers=mine)).status_code == 401
    (entry,) = running.registry.audit.list(search=f"invite.create {invite['token_id']}")
    assert (entry.actor, entry.source) == ("user:ada", "127.0.0.1")


async def test_whoever_tries_passwords_is_slowed_down(running: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("console.registry.users.matches", lambda password, stored: False)
    async with httpx2.AsyncClient(base_url=running.url) as http:
        tries = [http.post("/admin/v1/login", json={"name": f"u{n}", "password": "x"}) for n in range(7)]
        answers = await asyncio.gather(*tries)
    assert sorted(answer.status_code for answer in answers) == [401] * 5 + [429] * 2
    slowed = next(answer for answer in answers if answer.status_code == 429)
    assert slowed.headers["Retry-After"] == "12"
    assert slowed.json()["error"]["type"] == "rate_limit_error"
