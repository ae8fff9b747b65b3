"""The whole console in one process: data folder, admin routes through the client, chat through the SDK's routes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import stat
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, TypeVar

import httpx2
import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families as parse_metrics

import console.api.server
from agent.folder_lock import FolderLock
from agent.link.invite import decode as decode_invite
from console.api.admin import types as wire
from console.api.admin.plan_types import PlanRequest
from console.cli import main
from console.client import AdminClient
from console.credentials import open_authority
from console.data import ServiceFile, admin_key_path, service_file_path
from console.errors import (
    DataFolderBusy,
    DataFolderUnusable,
    PortUnavailable,
    ServiceRefused,
    ServiceUnreachable,
)
from console.registry.registry import Registry
from console.service import ConsoleService, ServiceSettings
from tests.conftest import ExpectLogs
from tests.support.patience import PATIENCE_S
from tests.support.played import make_chat_library

T = TypeVar("T")


def settings(folder: Path, **fields: Any) -> ServiceSettings:
    return ServiceSettings(folder=folder, keyring=False, **fields)


@contextlib.asynccontextmanager
async def client_of(folder: Path) -> AsyncIterator[Callable[..., Any]]:
    """Call the blocking admin client in a thread: `await ask(lambda console: console.status())`."""
    client = await asyncio.to_thread(AdminClient.for_data_folder, folder)
    try:

        async def ask(call: Callable[[AdminClient], T]) -> T:
            return await asyncio.to_thread(call, client)

        yield ask
    finally:
        await asyncio.to_thread(client.close)


async def test_the_service_says_where_it_is_and_leaves_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "console"
    async with ConsoleService(settings(folder)) as service:
        said = msgspec.json.decode(service_file_path(folder).read_bytes(), type=ServiceFile)
        assert said.api_url == service.api_url
        assert said.agents_urls == [f"wss://127.0.0.1:{said.agents_port}"]
        assert stat.S_IMODE(admin_key_path(folder).stat().st_mode) == 0o600
        async with client_of(folder) as ask:
            status = await ask(lambda console: console.status())
        assert (status.agents_known, status.pipelines) == (0, [])
    assert not service_file_path(folder).exists()
    with pytest.raises(ServiceUnreachable, match="fallow-console serve"):
        AdminClient.for_data_folder(folder)


async def test_a_second_console_on_the_same_folder_is_refused_and_the_first_goes_on(tmp_path: Path) -> None:
    async with ConsoleService(settings(tmp_path)):
        with pytest.raises(DataFolderBusy):
            await ConsoleService(settings(tmp_path)).start()
        async with client_of(tmp_path) as ask:
            await ask(lambda console: console.status())


@pytest.mark.parametrize("slow", ["Registry.open", "open_authority"])
async def test_a_start_that_is_cancelled_leaves_nothing_open_and_nobody_at_work(
    slow: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, began, may_end = asyncio.get_running_loop(), asyncio.Event(), threading.Event()
    steps = list[str]()

    def noted(name: str, work: Callable[..., Any], *, waits: bool = False) -> Callable[..., Any]:
        def run(*arguments: Any) -> Any:
            if waits:
                loop.call_soon_threadsafe(began.set)
                assert may_end.wait(PATIENCE_S)
            done = work(*arguments)
            steps.append(name)
            return done

        return run

    works: dict[str, Callable[..., Any]] = {"Registry.open": Registry.open, "open_authority": open_authority}
    monkeypatch.setattr(f"console.service.{slow}", noted("opened", works[slow], waits=True))
    monkeypatch.setattr(Registry, "close", noted("closed", Registry.close))
    monkeypatch.setattr("agent.folder_lock.FolderLock.release", noted("unlocked", FolderLock.release))
    starting = asyncio.create_task(ConsoleService(settings(tmp_path)).start())
    await began.wait()
    starting.cancel()
    await asyncio.sleep(0)
    assert steps == []
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert steps == ["opened", "closed", "unlocked"]


async def test_a_start_that_is_cancelled_before_the_api_answers_leaves_no_port_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listeners, listen = list[socket.socket](), console.api.server._listen

    def listen_and_cancel(host: str, port: int) -> socket.socket:
        listeners.append(listen(host, port))
        starting.cancel()
        return listeners[-1]

    monkeypatch.setattr("console.api.server._listen", listen_and_cancel)
    starting = asyncio.create_task(ConsoleService(settings(tmp_path)).start())
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert [listener.fileno() for listener in listeners] == [-1]


async def test_a_restart_keeps_fleet_keys_and_libraries(tmp_path: Path) -> None:
    folder, library = tmp_path / "console", tmp_path / "library"
    make_chat_library(library)
    async with ConsoleService(settings(folder)), client_of(folder) as ask:
        key = await ask(lambda console: console.create_key("someone"))
        await ask(lambda console: console.add_library(library))
        invite = decode_invite((await ask(lambda console: console.create_invite())).text)
    admin_key = admin_key_path(folder).read_text()
    async with ConsoleService(settings(folder)), client_of(folder) as ask:
        assert admin_key_path(folder).read_text() == admin_key
        assert [found.model_id for found in await ask(lambda console: console.libraries())] == ["small"]
        assert key.key in await ask(lambda console: console.keys())
        again = decode_invite((await ask(lambda console: console.create_invite())).text)
    assert invite.ca_spki_sha256 == again.ca_spki_sha256


async def test_a_lost_admin_key_is_replaced_and_the_old_one_is_dead(tmp_path: Path) -> None:
    async with ConsoleService(settings(tmp_path)):
        old = admin_key_path(tmp_path).read_text().strip()
    admin_key_path(tmp_path).unlink()
    async with ConsoleService(settings(tmp_path)) as service, httpx2.AsyncClient(base_url=service.api_url) as http:
        response = await http.get("/admin/v1/status", headers={"Authorization": f"Bearer {old}"})
        assert response.status_code == 401


async def test_a_taken_port_is_a_sentence_and_the_folder_is_free_again(tmp_path: Path) -> None:
    async with ConsoleService(settings(tmp_path / "a")) as first:
        port = int(first.api_url.rpartition(":")[2])
        with pytest.raises(PortUnavailable, match=r"--api-port"):
            await ConsoleService(settings(tmp_path / "b", api_port=port)).start()
    async with ConsoleService(settings(tmp_path / "b")):
        pass


async def test_a_damaged_registry_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "registry.sqlite").write_bytes(b"this is no database" * 100)
    with pytest.raises(DataFolderUnusable):
        await ConsoleService(settings(tmp_path)).start()


async def test_invites_agents_keys_and_the_audit_log_through_the_client(tmp_path: Path) -> None:
    async with ConsoleService(settings(tmp_path)) as service, client_of(tmp_path) as ask:
        made = await ask(lambda console: console.create_invite(uses=3, hours=2, auto_approve=True, hint="floor 2"))
        invite = decode_invite(made.text)
        assert (invite.max_uses, invite.approve, invite.urls) == (3, "auto", service.agents_urls())
        await ask(lambda console: console.revoke_invite(made.token_id))
        (kept,) = await ask(lambda console: console.invites())
        assert kept.revoked_s is not None
        assert await ask(lambda console: console.agents()) == []
        for change in ("approve", "deny", "revoke"):
            with pytest.raises(ServiceRefused, match="No device has") as caught:
                await ask(lambda console, change=change: getattr(console, change)("ffffffff"))
            assert caught.value.status == 404
        key = await ask(lambda console: console.create_key("someone", days=1))
        assert key.secret not in json.dumps(msgspec.to_builtins(await ask(lambda console: console.keys())))
        await ask(lambda console: console.revoke_key(key.key.key_id))
        actions = [entry.action for entry in await ask(lambda console: console.audit(limit=3))]
        assert actions[0] == "key.revoke"
        assert {"invite.create", "invite.revoke", "key.create"} <= {
            entry.action for entry in await ask(lambda console: console.audit())
        }


async def test_libraries_are_checked_when_they_are_added(tmp_path: Path) -> None:
    library = tmp_path / "library"
    make_chat_library(library)
    (library / "units" / "001.bin").write_bytes(b"torn")
    async with ConsoleService(settings(tmp_path / "console")), client_of(tmp_path / "console") as ask:
        with pytest.raises(ServiceRefused, match=r"001\.bin"):
            await ask(lambda console: console.add_library(library))
        with pytest.raises(ServiceRefused, match="no finished layer library"):
            await ask(lambda console: console.add_library(tmp_path / "nowhere"))
        assert await ask(lambda console: console.libraries()) == []


async def test_a_library_that_broke_since_is_shown_with_its_problem(tmp_path: Path, expected_logs: ExpectLogs) -> None:
    expected_logs("console.libraries")
    folder, library = tmp_path / "console", tmp_path / "library"
    make_chat_library(library)
    async with ConsoleService(settings(folder)), client_of(folder) as ask:
        await ask(lambda console: console.add_library(library))
    (library / "manifest.json").unlink()
    async with ConsoleService(settings(folder)), client_of(folder) as ask:
        (shown,) = await ask(lambda console: console.libraries())
        assert "no finished layer library" in shown.problem
        with pytest.raises(ServiceRefused, match="no finished layer library"):
            await ask(lambda console: list(console.deploy(wire.DeployRequest("small"))))


async def test_a_deployment_nobody_can_hold_ends_in_broken(tmp_path: Path) -> None:
    library = tmp_path / "library"
    make_chat_library(library)
    async with ConsoleService(settings(tmp_path / "console")), client_of(tmp_path / "console") as ask:
        await ask(lambda console: console.add_library(library))
        events = await ask(lambda console: list(console.deploy(wire.DeployRequest("small", context=64))))
        assert isinstance(events[-1], wire.Broken)
        (view,) = (await ask(lambda console: console.status())).pipelines
        assert (view.state, view.message) == ("failed", events[-1].message)


async def test_plans_and_questions_reach_the_planner_and_change_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, library = tmp_path / "console", tmp_path / "library"
    make_chat_library(library)
    async with ConsoleService(settings(folder)), client_of(folder) as ask:
        await ask(lambda console: console.add_library(library))
        plans = await ask(lambda console: console.plan(PlanRequest(wire.DeployRequest("small", context=64))))
        assert (plans.pipelines, plans.model) == ([], "small")
        assert "1 PC is needed" in plans.missing
        assert await asyncio.to_thread(main, ["plan", "small", "--context", "64", "--data", str(folder)]) == 1
        asked = ["plan", "what-if", "--at", "Tue 09:00", "--unknown", "50", "--data", str(folder)]
        assert await asyncio.to_thread(main, asked) == 0
        assert (await ask(lambda console: console.status())).pipelines == []
    shown = capsys.readouterr()
    assert "1 PC is needed" in shown.err
    assert "with 95% certainty" in shown.out
    assert "small: Of 0 PCs, 0 can be expected to rest then." in shown.out


async def test_health_is_about_the_process_and_readiness_about_models(tmp_path: Path) -> None:
    async with ConsoleService(settings(tmp_path)) as service, httpx2.AsyncClient(base_url=service.api_url) as http:
        assert (await http.get("/healthz")).json() == {"status": "ok"}
        key = {"Authorization": f"Bearer {admin_key_path(tmp_path).read_text().strip()}"}
        ready = await http.get("/readyz", headers=key)
        assert (ready.status_code, ready.json()) == (503, {"ready": False, "models": []})


@pytest.mark.parametrize(
    ("method", "path", "body", "param"),
    [
        ("POST", "invites", {"uses": 0}, "uses"),
        ("POST", "invites", {"hours": 1e9}, "hours"),
        ("POST", "invites", {"use": 1}, None),
        ("POST", "keys", {"name": ""}, "name"),
        ("POST", "keys", {"name": "x", "scope": "root"}, "scope"),
        ("POST", "libraries", {"folder": "relative"}, "folder"),
        ("POST", "deployments", {"model": "x", "stages": 0}, "stages"),
        ("POST", "deployments", {"model": "x", "engine": "magic"}, "engine"),
        ("POST", "plans", {"request": {"model": "x"}, "pipelines": 0}, "pipelines"),
        ("POST", "plans/what-if", {"at_s": 0, "certainty_percent": 0}, "certainty_percent"),
        ("POST", "keys", {"name": "x", "streams": 0}, "streams"),
        ("POST", "users", {"name": "x", "role": "king"}, "role"),
        ("POST", "users", {"name": "x", "password": "short"}, "password"),
        ("GET", "audit?limit=many", None, "limit"),
    ],
)
async def test_bad_admin_bodies_are_a_400(tmp_path: Path, method: str, path: str, body: Any, param: str | None) -> None:
    async with ConsoleService(settings(tmp_path)) as service, httpx2.AsyncClient(base_url=service.api_url) as http:
        headers = {"Authorization": f"Bearer {admin_key_path(tmp_path).read_text().strip()}"}
        response = await http.request(method, f"/admin/v1/{path}", json=body, headers=headers)
        assert response.status_code == 400
        assert response.json()["error"]["param"] == param


async def test_the_api_speaks_tls_of_the_fleet_when_others_may_reach_it(tmp_path: Path) -> None:
    async with ConsoleService(settings(tmp_path, api_host="0.0.0.0")) as service:
        assert service.api_url.startswith("https://")
        assert "0.0.0.0" not in service.api_url
        async with client_of(tmp_path) as ask:
            assert (await ask(lambda console: console.status())).api_url == service.api_url


async def test_the_metrics_can_be_read_with_a_key_that_may_look(tmp_path: Path) -> None:
    async with ConsoleService(settings(tmp_path)) as service, client_of(tmp_path) as ask:
        key = await ask(lambda console: console.create_key("prometheus", scope="view"))
        async with httpx2.AsyncClient(base_url=service.api_url) as http:
            await http.get("/healthz")
            answer = await http.get("/metrics", headers={"Authorization": f"Bearer {key.secret}"})
    assert answer.headers["content-type"].startswith("text/plain")
    families = {family.name: family for family in parse_metrics(answer.text)}
    (health,) = [one for one in families["fallow_http_requests"].samples if one.labels["endpoint"] == "/healthz"]
    assert (health.value, health.labels["outcome"]) == (1, "200")
    assert {sample.value for sample in families["fallow_agents"].samples} == {0}


async def test_where_the_time_of_answers_went_is_told_in_one_of_two_orders(tmp_path: Path) -> None:
    async with ConsoleService(settings(tmp_path)), client_of(tmp_path) as ask:
        assert await ask(lambda console: console.answer_times("newest", 5)) == []
        with pytest.raises(ServiceRefused, match="slowest, newest") as refused:
            await ask(lambda console: console.answer_times("fastest"))
        assert refused.value.status == 400
        assert await asyncio.to_thread(main, ["--data", str(tmp_path), "slow", "--stages"]) == 0
