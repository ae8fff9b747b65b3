"""console.chat.account, settings and console.chat_link: signing in, and what of it stays on the disk."""

from __future__ import annotations

import asyncio
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from keyring.errors import KeyringLocked

from console.access import Access
from console.chat.account import Account, ChatAccess
from console.chat.client import ChatClient
from console.chat.errors import AnswerFailed, LinkRefused, SecretsUnusable
from console.chat.settings import ChatSettings, read_settings, write_settings
from console.chat_link import ChatLink, ChatLinkInvalid, is_private, read_link, server_url
from console.client import AdminClient
from console.errors import DataFolderUnusable
from console.service import ConsoleService, ServiceSettings
from tests.support.chat_windows import Ring

PIN = "ab" * 32
FIRST = ChatAccess("http://127.0.0.1:1", "the-first")
SECOND = ChatAccess("http://127.0.0.1:2", "the-second", root_pem="A certificate")


class LockedRing(Ring):
    """A keyring that nobody unlocks."""

    def get_password(self, service: str, username: str) -> str | None:
        raise KeyringLocked("locked")

    def set_password(self, service: str, username: str, password: str) -> None:
        raise KeyringLocked(f"locked: {password}")


@given(st.text(min_size=1, max_size=50, alphabet=st.characters(min_codepoint=33, max_codepoint=126)))
def test_a_link_comes_back_as_it_was_made(key: str) -> None:
    link = ChatLink("https://console.example:8460", key, PIN)
    assert read_link(f"  {link.text()}\n") == link
    assert "key=" not in repr(link)


@pytest.mark.parametrize(
    "text",
    ["", "https://x", "https://x/#key=", "https://x/#pin=zz&key=a", "ftp://x/#key=a", "https:///#key=a",
     "https://x/#key=a&key=b", "https://u:p@x/#key=a", "https://x:99999/#key=a", "#key=a", "x" * 3000,
     "https://x/#key=%C3%A9", "https://x/#key=a%20b", "https://x/#key=a%0Ab", "https://a..b/#key=a",
     f"https://{'a' * 64}/#key=a", "https://\x7f/#key=a"],
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
    assert {
        server_url(text) for text in ("", "a b", "x:y", "a..b", "a" * 64, "\x7f", "https://[::1", "xn--\u00e9")
    } == {""}


@given(st.text(max_size=80))
def test_whatever_is_typed_as_an_address_is_one_or_none(text: str) -> None:
    url = server_url(text)
    if url:
        Access(url, "k").address()
        (urlsplit(url).hostname or "").encode("idna")


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()} if folder.exists() else {}


async def test_the_key_is_kept_in_the_keyring_only(tmp_path: Path) -> None:
    ring = Ring()
    account = Account(tmp_path / "chat", lambda: ring)
    assert await account.load() is None
    access = ChatAccess("http://127.0.0.1:1", "the-secret")
    assert await account.keep(access) == ""
    assert await account.load() == access
    assert not any(b"the-secret" in content for content in files(tmp_path / "chat").values())
    assert await account.forget() == ""
    assert await account.load() is None
    assert ring.kept == {}


async def test_without_a_keyring_the_key_is_kept_for_this_run_only_and_that_is_said(tmp_path: Path) -> None:
    account = Account(tmp_path, lambda: None)
    assert "no keyring" in await account.keep(FIRST)
    assert files(tmp_path) == {}
    assert await account.load() is None


async def test_a_keyring_that_is_locked_is_told_from_none(tmp_path: Path) -> None:
    ring = LockedRing()
    account = Account(tmp_path, lambda: ring)
    said = await account.keep(FIRST)
    assert "cannot be used" in said
    assert "no keyring" not in said
    assert "the-first" not in said


async def test_who_signs_in_for_this_once_leaves_everything_as_it_was(tmp_path: Path) -> None:
    ring = Ring()
    await Account(tmp_path, lambda: ring).keep(FIRST)
    before = files(tmp_path), dict(ring.kept)
    once = Account(tmp_path, lambda: ring, keeps=False)
    assert "for this once" in await once.keep(SECOND)
    assert await once.forget() == ""
    assert (files(tmp_path), ring.kept) == before


async def test_another_account_takes_the_place_of_the_former_and_its_key_goes(tmp_path: Path) -> None:
    ring = Ring()
    account = Account(tmp_path, lambda: ring)
    await account.keep(FIRST)
    assert await account.keep(SECOND) == ""
    assert list(ring.kept.values()) == ["the-second"]
    assert await account.load() == SECOND


@pytest.mark.parametrize("what", ["keyring", "disk"])
async def test_what_cannot_be_kept_whole_changes_nothing(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ring = Ring()
    account = Account(tmp_path, lambda: ring)
    await account.keep(FIRST)
    before = files(tmp_path), dict(ring.kept)

    def fails(*_: object, **__: object) -> None:
        raise DataFolderUnusable("The disk is full.")

    if what == "disk":
        monkeypatch.setattr("console.chat.account.write_whole", fails)
    else:
        monkeypatch.setattr(ring, "set_password", fails)
    assert await account.keep(SECOND)
    assert (files(tmp_path), ring.kept) == before
    assert await account.load() == FIRST


@pytest.mark.parametrize(("lost", "said"), [("keyring", "still in the keyring"), ("content", "damaged")])
async def test_signing_out_says_what_stays(lost: str, said: str, tmp_path: Path) -> None:
    await Account(tmp_path, Ring).keep(FIRST)
    locked = LockedRing()
    if lost == "content":
        (tmp_path / "account.json").write_bytes(b"{")
    account = Account(tmp_path, lambda: locked)
    stays = await account.forget()
    assert said in stays
    assert "remove the entry fallow-chat" in stays
    assert files(tmp_path) == {}


async def test_signing_out_says_that_a_file_cannot_be_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ring = Ring()
    account = Account(tmp_path, lambda: ring)
    await account.keep(FIRST)

    def refuses(path: Path, *, missing_ok: bool = False) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", refuses)
        assert "cannot be removed (Permission denied)" in await account.forget()
    assert ring.kept == {}


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[1]", b'{"url": 4}', b"[" * 5000])
async def test_a_damaged_account_says_so_and_can_be_replaced(content: bytes, tmp_path: Path) -> None:
    ring = Ring()
    account = Account(tmp_path, lambda: ring)
    (tmp_path / "account.json").write_bytes(content)
    with pytest.raises(SecretsUnusable, match="damaged; sign in again"):
        await account.load()
    assert await account.keep(FIRST) == ""
    assert await account.load() == FIRST


async def test_no_key_is_sent_in_the_clear_to_another_pc_however_its_link_came(tmp_path: Path) -> None:
    ring = Ring()
    account = Account(tmp_path, lambda: ring)
    with pytest.raises(LinkRefused, match="only over https"):
        await account.verify(ChatLink("http://console.example", "k"))
    await account.keep(ChatAccess("http://console.example", "k"))
    with pytest.raises(LinkRefused, match="only over https"):
        await account.load()


@pytest.mark.parametrize("url", ["https://" + "a" * 64, "https://a..b", "https://\x7f", "https://xn--\u00e9"])
async def test_a_server_that_no_name_can_be_of_cannot_be_reached(url: str, tmp_path: Path) -> None:
    with pytest.raises(LinkRefused, match="cannot be reached"):
        await Account(tmp_path, lambda: None).verify(ChatLink(url, "k", PIN))


def test_a_certificate_that_is_damaged_says_so() -> None:
    with pytest.raises(AnswerFailed, match="damaged; sign in"):
        ChatClient(ChatAccess("https://127.0.0.1:1", "k", root_pem="no certificate"))


async def test_a_chat_link_leads_to_the_server_it_pins_and_to_no_other(tmp_path: Path) -> None:
    settings = ServiceSettings(folder=tmp_path / "console", keyring=False, api_host="0.0.0.0")
    async with ConsoleService(settings) as service:
        url = f"https://127.0.0.1:{service.api_url.rpartition(':')[2]}"
        with AdminClient.for_data_folder(settings.folder) as console:
            pin = (await asyncio.to_thread(console.authority)).pin
        account = Account(tmp_path / "chat", lambda: None)
        access = await account.verify(ChatLink(url, "nobody's", pin))
        assert not (tmp_path / "chat").exists()
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
