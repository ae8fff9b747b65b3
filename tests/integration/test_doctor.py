"""Both doctors on a real console and a real enrolled PC: healthy first, then with one thing broken at a time."""

from __future__ import annotations

import asyncio
import hashlib
import json
import socket
import time
from pathlib import Path

import pytest

from agent import cli as agent_cli
from agent.doctor import machine, network
from agent.doctor.examination import examine_agent
from agent.doctor.findings import Finding
from agent.link.keystore import Keystore
from agent.link.store import Store
from console.cli import main as console_main
from console.client import AdminClient
from console.data import authority_path
from console.doctor import examine_console
from console.service import ConsoleService, ServiceSettings
from shard_export.library.manifest import MANIFEST_NAME, Manifest
from tests.support.libraries import make_library
from tests.support.toy_library import toy_library

KEYS = Keystore.files_only("agent")


def verdicts(found: list[Finding]) -> dict[str, str]:
    """The worst verdict of each check."""
    order = ("ok", "unknown", "problem")
    worst: dict[str, str] = {}
    for finding in found:
        worst[finding.check] = max(worst.get(finding.check, "ok"), finding.verdict, key=order.index)
    return worst


def said(found: list[Finding], check: str) -> str:
    return " ".join(finding.said for finding in found if finding.check == check)


@pytest.fixture(autouse=True)
def enough_of_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "LITTLE_DISK_BYTES", 1)
    monkeypatch.setattr(machine, "LITTLE_MEMORY_BYTES", 0)


async def test_a_pc_that_is_not_enrolled_is_told_so_with_all_else(tmp_path: Path) -> None:
    found = await examine_agent(tmp_path, KEYS)
    assert verdicts(found) == {
        "identity": "problem", "proxy": "ok", "disk": "ok", "memory": "ok", "device": "ok", "files": "ok",
        "token": "unknown", "agent": "problem",
    }  # fmt: skip
    for finding in found:
        assert finding.advice or finding.verdict != "problem"


async def test_the_way_to_a_console_is_looked_at_step_by_step(tmp_path: Path) -> None:
    settings = ServiceSettings(folder=tmp_path / "console", keyring=False)
    async with ConsoleService(settings) as service:
        (url,) = service.agents_urls()
        fleet = json.loads((authority_path(settings.folder) / "fleet.json").read_bytes())["fleet_id"]
        roots = (authority_path(settings.folder) / "authorities.pem").read_bytes()
        assert verdicts(await network.check_address(url)) == {"name": "ok", "port": "ok"}
        assert verdicts(await network.check_console(url, fleet, roots)) == {"certificate": "ok", "clock": "ok"}
        late = await network.check_console(url, fleet, roots, now=lambda: time.time() + 3600)
        assert "3600 s ahead" in said(late, "clock")
        async with ConsoleService(ServiceSettings(folder=tmp_path / "other", keyring=False)) as other:
            (wrong,) = other.agents_urls()
            stranger = await network.check_console(wrong, fleet, roots)
            assert verdicts(stranger) == {"certificate": "problem"}
            assert "Its certificate comes from" in said(stranger, "certificate")
    gone = await network.check_address(url)
    assert verdicts(gone) == {"name": "ok", "port": "problem"}
    nowhere = await network.check_address("wss://no-such-host.invalid:1")
    assert verdicts(nowhere) == {"name": "problem"}


async def test_a_console_is_examined_from_its_own_side(tmp_path: Path) -> None:
    folder, library = tmp_path / "console", tmp_path / "library"
    assert verdicts(await examine_console(folder)) == {"disk": "problem", "memory": "ok", "service": "problem"}
    make_library(library)
    async with ConsoleService(ServiceSettings(folder=folder, keyring=False)):

        def add() -> None:
            with AdminClient.for_data_folder(folder) as console:
                console.add_library(library)

        await asyncio.to_thread(add)
        found = await examine_console(folder)
        assert verdicts(found) == {
            "disk": "ok", "memory": "ok", "service": "ok", "name": "ok", "port": "ok", "certificate": "ok",
            "clock": "ok", "proxy": "ok", "firewall": "unknown", "registry": "ok", "agents": "problem", "files": "ok",
            "token": "unknown",
        }  # fmt: skip
        (library / "units" / "001.bin").write_bytes(b"torn")
        assert "001.bin" in said(await examine_console(folder), "files")


def test_damaged_model_files_are_found_and_deleted(tmp_path: Path) -> None:
    manifest, _ = make_library(tmp_path / "library")
    store = Store(tmp_path)
    record = manifest.layer(0).bin
    with store.open_part(record.sha256) as part:
        part.write((tmp_path / "library" / record.path).read_bytes())
        part.finish()
    assert verdicts(machine.check_store(tmp_path)) == {"files": "ok"}
    store.path(record.sha256).write_bytes(b"torn")
    assert "1 of 1" in said(machine.check_store(tmp_path), "files")
    assert not store.has(record.sha256)


def hold_layer(folder: Path, library: Path, manifest: Manifest, layer: int) -> None:
    """Put a layer of a library into an agent's store."""
    store = Store(folder)
    files = [record for unit in manifest.units_of_range(layer, layer + 1) for record in (unit.xml, unit.bin)]
    for name, path in {sha256_of(library / MANIFEST_NAME): MANIFEST_NAME, **{f.sha256: f.path for f in files}}.items():
        with store.open_part(name) as part:
            part.write((library / path).read_bytes())
            part.finish()


def sha256_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


async def test_a_token_comes_through_a_layer_that_is_held(tmp_path: Path) -> None:
    manifest = toy_library(tmp_path / "library")
    hold_layer(tmp_path, tmp_path / "library", manifest, 1)
    (finding,) = await machine.check_token(tmp_path)
    assert (finding.verdict, finding.advice) == ("ok", "")
    assert "one came through layer 1 of toy (" in finding.said


async def test_a_layer_that_does_not_run_is_a_problem(tmp_path: Path) -> None:
    manifest, _ = make_library(tmp_path / "library")
    hold_layer(tmp_path, tmp_path / "library", manifest, 0)
    found = await machine.check_token(tmp_path)
    assert verdicts(found) == {"token": "problem"}
    assert "layer 0 of small does not run" in said(found, "token")
    assert list((tmp_path / "stages").iterdir()) == []


async def test_a_port_range_that_is_taken_is_said(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert verdicts(await network.check_own_port("127.0.0.1", port, port)) == {"firewall": "problem"}
    assert verdicts(await network.check_own_port("127.0.0.1", 0, 0)) == {"firewall": "ok"}


def test_a_proxy_is_named_without_its_password() -> None:
    proxies = {"https": "http://user:canary@proxy.example:3128", "no": "localhost"}
    (finding,) = network.check_proxy(["wss://console:8461"], lambda: proxies)
    assert "proxy.example" in finding.said
    assert "canary" not in finding.said + finding.advice


def test_both_commands_print_json_and_say_by_their_exit_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert agent_cli.main(["doctor", "--data", str(tmp_path / "agent"), "--json"]) == 1
    assert {"check", "verdict", "said", "advice"} == set(json.loads(capsys.readouterr().out)["findings"][0])
    assert console_main(["doctor", "--data", str(tmp_path / "none"), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["findings"][-1]["check"] == "service"
    assert console_main(["doctor", "--data", str(tmp_path / "none")]) == 1
    assert "-> Start it: fallow-console serve" in capsys.readouterr().out
