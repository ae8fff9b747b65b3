"""Canary secrets: what people and PCs must not learn is in no log, error, audit entry, file or process list."""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import logging
import sys
from asyncio.subprocess import PIPE
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest

from agent.cli import build_parser as agent_parser
from agent.link import invite as invites
from agent.link.errors import IdentityUnreadable
from agent.link.keys import create_key, load_key
from agent.link.keystore import Keystore
from console.cli import build_parser as console_parser
from console.cli import main
from console.data import admin_key_path
from console.registry.errors import RegistryUnreadable
from console.registry.registry import Registry
from console.service import ConsoleService, ServiceSettings

PASSWORD, WRONG, NEW = "canary-password-1", "canary-password-2", "canary-password-3"
PROMPT, KEY = "canary-prompt-4", "flw-" + "c" * 12 + "-" + "canary5" * 6 + "x"


class Watched:
    """Everything the console said to others, and every secret that was in play."""

    def __init__(self, http: httpx2.AsyncClient) -> None:
        self._http = http
        self.refusals: list[str] = []
        self.secrets = {PASSWORD, WRONG, NEW, PROMPT, KEY}

    async def ask(self, method: str, path: str, token: str = "", **options: Any) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        answer = await self._http.request(method, path, headers=headers, **options)
        if answer.is_error:
            self.refusals.append(answer.text + repr(answer.headers))
        value: dict[str, Any] = answer.json()
        return value


async def work(console: Watched, admin_key: str) -> None:
    """Do with secrets whatever they are made for, and much they are not."""
    user = {"name": "ada", "password": PASSWORD}
    await console.ask("POST", "/admin/v1/users", admin_key, json=user)
    await console.ask("POST", "/admin/v1/users", admin_key, json=user)
    for login in (
        {**user, "password": WRONG}, {"name": WRONG, "password": WRONG}, {"name": "ada", "password": [PASSWORD]},
        {"name": "ada", "passwort": PASSWORD}, {"name": [PASSWORD], "password": ""},
    ):  # fmt: skip
        await console.ask("POST", "/admin/v1/login", json=login)
    await console.ask("POST", "/admin/v1/login", content=f'{{"password": "{PASSWORD}", '.encode())
    session = (await console.ask("POST", "/admin/v1/login", json=user)).get("token", "")
    made = await console.ask("POST", "/admin/v1/keys", admin_key, json={"name": "x", "user": "ada"})
    invite = await console.ask("POST", "/admin/v1/invites", admin_key)
    console.secrets |= {session[-43:], made["secret"][-43:], invite["text"].split(".")[1]} - {""}
    for token in (KEY, made["secret"], session, invite["text"], WRONG):
        await console.ask("GET", "/admin/v1/keys", token)
        await console.ask("DELETE", f"/admin/v1/keys/{made['key']['key_id']}", token)
    message = {"role": "user", "content": PROMPT}
    for body in ({"messages": [message]}, {"messages": [message], "stop": [PROMPT] * 9}, {"messages": PROMPT}):
        await console.ask("POST", "/v1/chat/completions", made["secret"], json={"model": "none", **body})
    change = {"password": PASSWORD, "new_password": NEW}
    await console.ask("POST", "/admin/v1/me/password", session, json={**change, "password": WRONG})
    await console.ask("POST", "/admin/v1/me/password", session, json=change)


async def test_no_secret_is_anywhere_it_does_not_belong(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with (
        ConsoleService(ServiceSettings(folder=tmp_path, keyring=False)) as service,
        httpx2.AsyncClient(base_url=service.api_url) as http,
    ):
        console = Watched(http)
        admin_key = admin_key_path(tmp_path).read_text().strip()
        await work(console, admin_key)
        audit = await http.get("/admin/v1/audit/export", headers={"Authorization": f"Bearer {admin_key}"})
        processes = " ".join(" ".join(process.cmdline()) for process in family())
    files = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    found = {path for path, content in files.items() if admin_key[-43:].encode() in content}
    assert found == {admin_key_path(tmp_path)}
    assert len(console.secrets) == 8
    assert len(console.refusals) > 15
    for secret in (*console.secrets, admin_key[-43:]):
        assert secret not in " ".join(console.refusals)
        assert secret not in caplog.text
        assert secret not in audit.text
        assert secret not in processes
        assert secret not in repr([record.args for record in caplog.records])
    for secret in console.secrets:
        assert not [path for path, content in files.items() if secret.encode() in content]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGTERM to send to a console process")
async def test_an_agent_shows_no_secret_to_anybody(tmp_path: Path) -> None:
    data, invite_file = tmp_path / "agent", tmp_path / "invite"
    async with ConsoleService(ServiceSettings(folder=tmp_path / "console", keyring=False)) as service:
        admin = {"Authorization": f"Bearer {admin_key_path(tmp_path / 'console').read_text().strip()}"}
        async with httpx2.AsyncClient(base_url=service.api_url, headers=admin) as http:
            text = (await http.post("/admin/v1/invites", json={"auto_approve": True})).json()["text"]
            invite_file.write_text(text)
            command = [sys.executable, "-m", "agent", "run", "--data", str(data), "--invite-file", str(invite_file)]
            agent = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=PIPE)
            try:
                async with asyncio.timeout(60):
                    while not service._hub.agents():
                        await asyncio.sleep(0.05)
                shown = psutil.Process(agent.pid)
                said = " ".join([*shown.cmdline(), *shown.environ().values()])
            finally:
                agent.terminate()
                out, log = await agent.communicate()
            said += (await http.get("/admin/v1/audit/export")).text + (await http.get("/admin/v1/agents")).text
    said += (out + log).decode() + (data / "state.json").read_text()
    passphrases = [json.loads(path.read_bytes())["passphrase"] for path in data.rglob("*.passphrase.json")]
    secret = invites.decode(text).token_secret
    assert len(passphrases) == 1
    for canary in (*passphrases, text.split(".")[1], secret.hex(), base64.b64encode(secret).decode(), "PRIVATE KEY-"):
        assert canary not in said
    assert not invite_file.exists()
    for path in (path for path in tmp_path.rglob("*") if path.is_file()):
        assert secret not in path.read_bytes()
        assert path.name.endswith(".passphrase.json") or passphrases[0].encode() not in path.read_bytes()


def test_an_error_about_a_key_does_not_show_what_opens_it(tmp_path: Path) -> None:
    made = create_key(tmp_path, Keystore.files_only("test"))
    place = tmp_path / f"{made.stem}.passphrase.json"
    place.write_bytes(place.read_bytes().replace(made.passphrase.value.encode(), KEY.encode()))
    with pytest.raises(IdentityUnreadable) as refused:
        load_key(tmp_path, made.stem, Keystore.files_only("test"))
    assert KEY not in str(refused.value) + repr(made)
    assert made.passphrase.value not in repr(made)


def family() -> Iterator[psutil.Process]:
    me = psutil.Process()
    yield me
    yield from me.children(recursive=True)


def test_the_password_of_a_database_is_not_repeated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for url in (f"postgresql://u:{PASSWORD}@127.0.0.1:1/x", f"nosuch://u:{PASSWORD}@host/x", f"{PASSWORD}://x"):
        with pytest.raises(RegistryUnreadable) as refused:
            Registry.open(url)
        assert PASSWORD not in str(refused.value)
    assert main(["serve", "--data", str(tmp_path), "--database", f"nosuch://u:{PASSWORD}@host/x"]) == 1
    said = capsys.readouterr()
    assert PASSWORD not in said.out + said.err


def options_of(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                yield from options_of(inner)


@pytest.mark.parametrize("parser", [console_parser(), agent_parser()], ids=["console", "agent"])
def test_no_command_takes_a_secret_as_an_argument(parser: argparse.ArgumentParser) -> None:
    takes = {
        option
        for action in options_of(parser)
        if action.nargs != 0
        for option in (*action.option_strings, action.dest)
        if any(word in option for word in ("password", "secret", "token", "invite", "passphrase"))
    }
    assert takes <= {"--invite-file", "invite_file", "--tokens-per-day", "tokens_per_day", "--max-tokens", "max_tokens"}
