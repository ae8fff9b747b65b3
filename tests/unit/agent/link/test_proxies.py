from __future__ import annotations

import ssl

import pytest

from agent.link.channel import Dialler
from agent.link.closing import LinkCut
from agent.link.proxies import proxy_hint, proxy_hosts


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setenv("https_proxy", "http://user:canary@proxy.example:3128")


def test_a_proxy_is_named_without_its_password(proxy: None) -> None:
    hint = proxy_hint("wss://console.example:8461")
    assert "proxy proxy.example;" in hint
    assert "console.example directly" in hint
    assert "canary" not in hint


def test_without_a_proxy_on_the_way_nothing_is_said(proxy: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert proxy_hint("wss://127.0.0.1:8461") == ""
    monkeypatch.setenv("no_proxy", "console.example")
    assert proxy_hint("wss://console.example:8461") == ""
    monkeypatch.delenv("https_proxy")
    monkeypatch.delenv("no_proxy")
    assert proxy_hint("wss://console.example:8461") == ""


def test_each_proxy_is_named_once() -> None:
    proxies = {"http": "http://a:1", "https": "http://a:1", "all": "user:canary@b:3128", "no": "x", "ftp": "http://c"}
    assert proxy_hosts(proxies) == ["a", "b"]


async def test_a_console_that_is_not_reached_has_the_proxy_named(proxy: None) -> None:
    dialler = Dialler(["wss://console.invalid:1"], ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), "console.x.invalid")
    with pytest.raises(LinkCut, match="set to use the proxy"):
        await dialler.dial("/control")
