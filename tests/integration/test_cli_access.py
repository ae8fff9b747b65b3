"""`fallow-console user`, `key` and `audit` against a running console."""

from __future__ import annotations

import asyncio
import io
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from console import calls
from console.chat_link import read_link
from console.cli import main
from console.client import AdminClient
from console.errors import ServiceRefused, ServiceUnreachable
from console.fleet.delivery import DeliveryEnded, DeliveryEvent
from console.registry.registry import Registry
from console.service import ConsoleService, ServiceSettings
from tests.support.libraries import make_library
from tests.support.patience import until

Run = Callable[..., Any]


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run one command in a thread: `await run("user list", stdin="...")`; returns its JSON, or the exit code."""

    async def call(line: str, *, stdin: str = "", fails: int = 0) -> Any:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        command = [*line.split(), "--data", str(tmp_path / "console"), "--json"]
        capsys.readouterr()
        code = await asyncio.to_thread(main, command)
        said = capsys.readouterr()
        assert code == fails, said.err
        return json.loads(said.out) if code == 0 else said.err

    return call


async def test_users_and_their_keys_from_first_to_last(tmp_path: Path, run: Run) -> None:
    async with ConsoleService(ServiceSettings(folder=tmp_path / "console", keyring=False)) as service:
        await run("user create ada --role operator", stdin="correct horse battery\n")
        assert "at least 10 characters" in await run("user create bob", stdin="short\n", fails=1)
        await run("user create bob --no-password")
        assert [user["has_password"] for user in await run("user list")] == [True, False]
        made = await run("key create laptop --user ada --scope operate --streams 2 --model small")
        assert made["key"]["quota"] == {"streams": 2, "tokens_per_day": None, "models": ["small"]}
        link = await run("key create chat --user bob --link")
        assert read_link(link["detail"]["link"]).url == service.api_url
        await run(f"key limit {made['key']['key_id']} --tokens-per-day 5")
        listed = {key["name"]: key for key in await run("key list")}
        assert listed["laptop"]["quota"] == {"streams": None, "tokens_per_day": 5, "models": []}

        def as_ada() -> list[str]:
            with AdminClient.log_in(service.api_url, "ada", "correct horse battery") as console:
                scopes: list[str] = list(console.who_am_i().scopes)
                with pytest.raises(ServiceRefused, match="'admin' is needed"):
                    console.users()
                console.log_out()
                with pytest.raises(ServiceRefused) as ended:
                    console.who_am_i()
                assert ended.value.status == 401
            return scopes

        assert await asyncio.to_thread(as_ada) == ["chat", "operate", "view"]
        await run("user role ada auditor")
        await run("user disable ada")
        with pytest.raises(ServiceRefused) as refused:
            await asyncio.to_thread(AdminClient.log_in, service.api_url, "ada", "correct horse battery")
        assert refused.value.code == "invalid_login"
        await run("user enable ada")
        await run("user password ada --none")
        assert "no user eve" in await run("user role eve owner", fails=1)


def cut_short(_: AdminClient) -> Iterator[bytes]:
    """An export whose console leaves after a line."""
    yield b"{}"
    raise ServiceUnreachable("The console went away.")


async def test_the_audit_log_is_searched_exported_and_verified(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    export = tmp_path / "log.jsonl"
    async with ConsoleService(ServiceSettings(folder=tmp_path / "console", keyring=False)):
        await run("user create ada --no-password")
        (entry,) = await run("audit search ada user.create")
        assert (entry["target"], entry["detail"]) == ("ada", {"role": "user", "password": False})
        checked = await run("audit verify")
        known = f"{checked['last_sequence']}:{checked['last_hash']}"
        assert (await run(f"audit export --out {export}"))["detail"]["entries"] == checked["entries"] + 1
        whole = export.read_bytes()
        with monkeypatch.context() as patched:
            patched.setattr(AdminClient, "export_audit", cut_short)
            assert "went away" in await run(f"audit export --out {export}", fails=3)
        assert (export.read_bytes(), [path.name for path in tmp_path.glob("log*")]) == (whole, ["log.jsonl"])
        assert export.stat().st_mode & 0o077 == 0
        assert "rewritten" in await run(f"audit verify --known {checked['last_sequence']}:{'0' * 64}", fails=1)
        assert len(await run("audit list --limit 2")) == 2
    assert (await run(f"audit verify --file {export} --known {known}"))["entries"] == checked["entries"] + 1
    export.write_bytes(export.read_bytes().replace(b'"role":"user"', b'"role":"owner"'))
    assert "was changed" in await run(f"audit verify --file {export}", fails=1)
    export.write_bytes(b"not a log\n")
    assert "Line 1" in await run(f"audit verify --file {export}", fails=1)
    assert "--known takes" in await run("audit verify --known x", fails=1)


async def test_an_export_takes_the_place_of_files_only(tmp_path: Path, run: Run) -> None:
    export, trap, device = tmp_path / "log.jsonl", tmp_path / "theirs", tmp_path / "device"
    (tmp_path / "log.jsonl.part").symlink_to(trap)
    device.symlink_to("/dev/null")
    async with ConsoleService(ServiceSettings(folder=tmp_path / "console", keyring=False)):
        for out in (export, device):
            await run(f"audit export --out {out}")
    assert not trap.exists()
    assert not export.is_symlink()
    assert export.stat().st_mode & 0o077 == 0
    assert device.is_char_device()


async def test_a_delivery_says_what_is_wrong_before_it_begins(tmp_path: Path, run: Run) -> None:
    make_library(tmp_path / "library")
    async with ConsoleService(ServiceSettings(folder=tmp_path / "console", keyring=False)):
        await run(f"models --add {tmp_path / 'library'}")
        assert "No PC is connected" in await run("deliver small", fails=1)
        assert "has layers 0 to 3" in await run("deliver small --last 9", fails=1)
        assert "no layer library" in await run("deliver other", fails=1)


async def test_a_delivery_that_a_stopped_console_left_goes_on_and_can_be_ended(tmp_path: Path, run: Run) -> None:
    _, digest = make_library(tmp_path / "library")
    with Registry.open(tmp_path / "console" / "registry.sqlite") as registry:
        registry.libraries.add(digest, "small", str(tmp_path / "library"))
        registry.deliveries.begin("small", digest, (0, 4), ["d" * 32, "e" * 32])
        looks = registry.keys.create("looks", ["view"])[1]
    async with ConsoleService(ServiceSettings(folder=tmp_path / "console", keyring=False)) as service:
        (running,) = (await run("deliver"))["deliveries"]
        assert (running["model"], running["total"], running["delivered"]) == ("small", 2, 0)

        def look(model: str) -> list[DeliveryEvent]:
            with AdminClient(service.api_url, looks) as console:
                return list(console.follow(calls.follow_delivery(model)))

        looking = asyncio.create_task(asyncio.to_thread(look, "small"))
        with pytest.raises(ServiceRefused, match="not being delivered"):
            await asyncio.to_thread(look, "other")
        await until(lambda: any(job.listeners for job in service._deliveries._jobs.values()))
        await run("deliver small --stop")
        assert (await looking)[-1] == DeliveryEnded(0, 0, "It was ended by an administrator.")
        assert (await run("deliver"))["deliveries"] == []
        assert "not being delivered" in await run("deliver small --stop", fails=1)
    with Registry.open(tmp_path / "console" / "registry.sqlite") as registry:
        assert registry.deliveries.unfinished() == []
