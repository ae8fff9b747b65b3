"""console.chat.account, settings and console.chat_link: signing in, and what of it stays on the disk."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.access import Access
from console.chat.account import Account
from console.chat.client import ChatClient
from console.chat.errors import LinkRefused
from console.chat.settings import ChatSettings, read_settings, write_settings
from console.chat_link import ChatLink, ChatLinkInvalid, is_private, read_link, server_url
from console.client import AdminClient
from console.service import ConsoleService, ServiceSettings
from tests.support.chat_windows import Ring

PIN = "ab" * 32


@given(st.text(min_size=1, max_size=50, alphabet=st.characters(codec="utf-8")))
def test_a_link_comes_back_as_it_was_made(key: str) -> None:
    link = ChatLink("https://console.example:8460", key, PIN)
    assert read_link(f"  {link.text()}\n") == link
    assert "key=" not in repr(link)


@pytest.mark.parametrize(
    "text",
    ["", "https://x", "https://x/#key=", "https://x/#pin=zz&key=a", "ftp://x/#key=a", "https:///#key=a",
     "https://x/#key=a&key=b", "https://u:p@x/#key=a", "https://x:99999/#key=a", "#key=a", "x" * 3000],
)  # fmt: skip
def test_what_is_no_link_is_refused_without_repeating_it(text: str) -> None:
    with pytest.raises(ChatLinkInvalid) as refused:
        read_link(text)
    assert not text or text not in str(refused.value)


def test_addresses_are_taken_as_people_type_them() -> None:
    assert server_url(" console.example:8460/ ") == "https://console.example:8460"
    assert server_url("http://127.0.0.1:80/v1") == "http://127.0.0.1:80"
    assert server_url("https://[::1]:8460") == "https://[::1]:8460"
    private = [
        is_private(url) for url in ("https://x", "http://127.0.0.1:1", "http://[::1]", "http://localhost", "http://x")
    ]
    assert private == [True, True, True, True, False]
    assert (server_url(""), server_url("a b"), server_url("x:y")) == ("", "", "")


async def test_the_key_is_kept_in_the_keyring_only(tmp_path: Path) -> None:
    ring = Ring()
    account = Account(tmp_path / "chat", lambda: ring)
    assert await account.load() is None
    access = Access("http://127.0.0.1:1", "the-secret")
    assert await account.keep(access)
    assert await account.load() == access
    assert not any(b"the-secret" in path.read_bytes() for path in (tmp_path / "chat").iterdir())
    await account.forget()
    assert await account.load() is None
    assert ring.kept == {}


async def test_without_a_keyring_the_key_is_kept_for_this_run_only_and_that_is_said(tmp_path: Path) -> None:
    account = Account(tmp_path, lambda: None)
    assert not await account.keep(Access("http://127.0.0.1:1", "the-secret"))
    assert not any(b"the-secret" in path.read_bytes() for path in tmp_path.iterdir())


async def test_a_chat_link_leads_to_the_server_it_pins_and_to_no_other(tmp_path: Path) -> None:
    settings = ServiceSettings(folder=tmp_path / "console", keyring=False, api_host="0.0.0.0")
    async with ConsoleService(settings) as service:
        url = f"https://127.0.0.1:{service.api_url.rpartition(':')[2]}"
        with AdminClient.for_data_folder(settings.folder) as console:
            pin = (await asyncio.to_thread(console.authority)).pin
        account = Account(tmp_path / "chat", lambda: None)
        access = await account.verify(ChatLink(url, "nobody's", pin))
        client = ChatClient(access)
        with pytest.raises(Exception, match="not valid any more"):
            await client.models()
        await client.close()
        with pytest.raises(LinkRefused, match="not the one this link means"):
            await account.verify(ChatLink(url, "nobody's", PIN))
    with pytest.raises(LinkRefused, match="cannot be reached"):
        await account.verify(ChatLink(url, "nobody's", pin))


def test_settings_come_back_and_what_cannot_be_read_is_left_aside(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "settings.json"
    assert read_settings(path) == ChatSettings()
    changed = ChatSettings(theme="dark", font_percent=120, shortcuts={"new": "Ctrl+T"})
    write_settings(path, changed)
    assert read_settings(path) == changed
    path.write_text('{"font_percent": 4000}')
    assert read_settings(path) == ChatSettings()
    path.unlink()
    path.mkdir()
    write_settings(path, changed)
    assert read_settings(path) == ChatSettings()
