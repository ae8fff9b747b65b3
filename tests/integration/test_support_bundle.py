"""`support-bundle` of console and agent: canary secrets placed everywhere are in no byte of any member."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from agent.cli import main as agent_main
from agent.link.keys import create_key
from agent.link.keystore import Keystore
from agent.logs.handlers import set_up, tear_down
from console import calls
from console.cli import main
from console.client import AdminClient
from console.data import log_path
from tests.support.console_thread import ConsoleThread, console_thread

PROMPT, PASSWORD, DATABASE = "canary-prompt-61", "canary-password-62", "canary-database-63"
FORMER_KEY = f"flw-{'a' * 12}-{'canary64' * 5}xyz"


def members(out: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(out) as opened:
        return {name: opened.read(name) for name in opened.namelist()}


def assert_clean(files: dict[str, bytes], *canaries: str) -> None:
    home = str(Path.home())
    for name, content in files.items():
        for canary in canaries:
            assert canary.encode() not in content, (name, canary)
        assert b"PRIVATE KEY" not in content
        if len(home) > 3:
            assert home.encode() not in content, name


@pytest.fixture
def console(tmp_path: Path) -> Iterator[ConsoleThread]:
    with console_thread(tmp_path / "console") as running:
        yield running


def test_a_consoles_bundle_says_how_all_is_and_holds_no_secret(
    console: ConsoleThread, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("console.support.examine_console", _no_findings)
    folder, access = console.folder, console.access()
    with AdminClient(access.url, access.token) as client:
        key = client.ask(calls.create_key("canary")).secret
        invite = client.ask(calls.create_invite(hint=f"{Path.home()}/x")).text
        client.ask(calls.create_user("ada", password=PASSWORD))
    passphrases = [json.loads(path.read_bytes())["passphrase"] for path in folder.rglob("*.passphrase.json")]
    set_up(level="DEBUG", file=log_path(folder), stderr=False)
    try:
        for path in ("/v1/chat/completions", f"/v1/models/{FORMER_KEY}"):
            body = {"model": "none", "messages": [{"role": "user", "content": PROMPT}]}
            httpx2.post(access.url + path, json=body, headers={"Authorization": f"Bearer {key}"}, trust_env=False)
    finally:
        tear_down()
    # What an older version, or somebody else's program, may have left in the places that are read.
    with log_path(folder).open("a") as log:
        for text in (key, access.token, invite, FORMER_KEY, passphrases[0]):
            log.write(json.dumps({"time": "x", "message": f"It was {text}", "exception": f"E: {text}"}) + "\n")
            log.write(f"2026-01-01 INFO x: It was {text} in {Path.home()}/y\n")
        log.write(f"postgresql://fallow:{DATABASE}@host/x and password={PASSWORD}\n")
    (folder / "chats.sqlite").write_text(PROMPT)
    (folder / "prompts.jsonl").write_text(json.dumps(PROMPT))

    out = tmp_path / "bundle.zip"
    assert main(["support-bundle", "--data", str(folder), "--out", str(out)]) == 0
    said = " ".join(capsys.readouterr().out.split())  # wherever it is broken
    assert said.index("The bundle will hold") < said.index("holds") < said.index("Look inside")
    files = members(out)
    manifest = json.loads(files["manifest.json"])
    assert {one["name"]: one["problem"] for one in manifest["files"] if one["problem"]} == {}
    assert {
        "manifest.json", "versions.json", "pc.json", "settings.json", "status.json", "libraries.json", "builds.json",
        "deliveries.json", "pcs.json", "policy.json", "log_levels.json", "metrics.txt", "logs/service.log",
        "doctor.json",
    } == set(files)  # fmt: skip
    assert b"fallow_build_info" in files["metrics.txt"]
    assert b"POST /v1/chat/completions: 404" in files["logs/service.log"]
    secrets = [each.split("-", 2)[2] for each in (key, access.token, FORMER_KEY)]
    assert_clean(files, *secrets, invite.split(".")[1], *passphrases, PROMPT, PASSWORD, DATABASE)

    capsys.readouterr()
    assert main(["support-bundle", "--data", str(folder), "--out", str(out)]) == 1
    assert "is there already" in capsys.readouterr().err
    assert members(out) == files


async def _no_findings(folder: Path) -> list[object]:
    return []


def test_without_a_service_a_bundle_says_so_and_holds_the_rest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "bundle.zip"
    code = main(["support-bundle", "--data", str(tmp_path), "--out", str(out), "--no-doctor", "--json"])
    manifest = json.loads(capsys.readouterr().out)
    assert code == 0
    problems = {one["name"]: one["problem"] for one in manifest["files"]}
    assert problems["versions.json"] == ""
    assert "fallow-console serve" in problems["status.json"]
    assert set(members(out)) == {"manifest.json", "versions.json", "pc.json"}


def test_an_agents_bundle_holds_no_secret(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "agent"
    folder.mkdir()
    made = create_key(folder, Keystore.files_only("agent"))
    passphrase = made.passphrase.value
    invite = f"fallow1.{'canary65' * 6}.abcdefgh"
    (folder / "agent.toml").write_text('volunteer = "always"\n')
    (folder / "measured.json").write_text(json.dumps({"note": f"{Path.home()}/x", "secret": PASSWORD}))
    (folder / "memory.json").write_text("{torn")
    for name in ("agent.log", "agent.log.1"):
        line = json.dumps({"message": f"An invite was {invite}", "exception": f"x {passphrase}"})
        (folder / name).write_text(f"{line}\nBearer {FORMER_KEY} https://u:{PASSWORD}@host\n")
    out = tmp_path / "bundle.zip"
    assert agent_main(["support-bundle", "--data", str(folder), "--out", str(out), "--no-doctor"]) == 0
    said = capsys.readouterr().out
    assert "  settings.json: agent.toml as it is understood" in said
    assert "  memory.json: It could not be made: DecodeError" in said
    files = members(out)
    assert json.loads(files["settings.json"])["volunteer"] == "always"
    assert {"logs/agent.log", "logs/agent.log.1", "measured.json", "versions.json", "pc.json"} <= set(files)
    assert_clean(files, passphrase, "canary65", PASSWORD, FORMER_KEY.split("-", 2)[2])
    assert agent_main(["support-bundle", "--data", str(folder), "--out", str(out), "--no-doctor"]) == 16
    assert "is there already" in capsys.readouterr().err
