"""Web pages of other origins: kept out unless an origin was allowed, and then only below /v1."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from console.api.cors import is_origin
from tests.support.api import CHAT_KEY, ScriptedModel, chat_app, says, serving

CHAT = "https://chat.example.org"
BODY: dict[str, Any] = {"model": "small", "messages": [{"role": "user", "content": "Hi"}]}
ASKS = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,x-stainless-lang"}


async def ask(method: str, path: str, headers: dict[str, str], *, allowed: list[str]) -> httpx2.Response:
    async with (
        serving(chat_app(ScriptedModel(says("ok")), cors_origins=allowed)) as url,
        httpx2.AsyncClient(base_url=url) as http,
    ):
        return await http.request(method, path, headers=headers, json=BODY if method == "POST" else None)


async def test_an_allowed_page_may_ask_and_read_the_headers_that_matter() -> None:
    path, origin = "/v1/chat/completions", {"Origin": CHAT}
    before = await ask("OPTIONS", path, origin | ASKS, allowed=[CHAT])
    assert before.status_code == 200
    assert before.headers["access-control-allow-origin"] == CHAT
    assert "x-stainless-lang" in before.headers["access-control-allow-headers"]
    answer = await ask("POST", path, origin | {"Authorization": f"Bearer {CHAT_KEY}"}, allowed=[CHAT])
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == CHAT
    assert "x-request-id" in answer.headers["access-control-expose-headers"]
    assert "access-control-allow-credentials" not in answer.headers
    refused = await ask("POST", path, origin, allowed=[CHAT])
    assert refused.status_code == 401
    assert refused.headers["access-control-allow-origin"] == CHAT


@pytest.mark.parametrize(
    ("allowed", "origin", "path"),
    [
        ([], CHAT, "/v1/models"),
        ([CHAT], "https://evil.example.org", "/v1/models"),
        ([CHAT], CHAT + ".evil.org", "/v1/models"),
        ([CHAT], CHAT, "/admin/v1/keys"),
        (["*"], CHAT, "/admin/v1/keys"),
        (["*"], CHAT, "/v1/../admin/v1/keys"),
    ],
)
async def test_other_pages_and_other_paths_stay_closed(allowed: list[str], origin: str, path: str) -> None:
    for method in ("OPTIONS", "GET"):
        answer = await ask(method, path, {"Origin": origin} | ASKS, allowed=allowed)
        assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize(
    ("text", "good"),
    [
        (CHAT, True), ("http://[::1]:8080", True), ("*", True), ("https://*.example.org", False), (CHAT + "/", False),
        ("chat.example.org", False), ("https://", False), ("null", False),
    ],
)  # fmt: skip
def test_an_origin_is_a_scheme_and_a_host(text: str, good: bool) -> None:
    assert is_origin(text) is good
