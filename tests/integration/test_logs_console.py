"""What a console logs of real requests at DEBUG: ids of what they were, and none of the keys and prompts in them."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from agent.logs.handlers import log_files, set_up, tear_down
from agent.logs.levels import LEVELS_HERE
from console import calls
from console.api.admin import types as wire
from console.cli import main
from console.client import AdminClient
from console.pipeline.tokens import ModelTokenizer
from tests.conftest import ExpectLogs
from tests.support.console_thread import ConsoleThread
from tests.support.played_console import played_console

PROMPT, PASSWORD = "canary-prompt-41", "canary-password-42"
ANSWER = "canary-answer-43"
LIBRARIES = ("websockets", "uvicorn", "httpx2", "httpcore2", "asyncio", "sqlalchemy", "h11")


@pytest.fixture
def console(tmp_path: Path) -> Iterator[ConsoleThread]:
    with played_console(tmp_path, "ash", "elm") as (console, pcs):
        for pc in pcs.values():
            pc.text = ANSWER
        access = console.access()
        with AdminClient(access.url, access.token) as client:
            request = wire.DeployRequest("small", stages=2, context=256, streams=2, draft="none")
            assert isinstance(list(client.follow(calls.deploy(request)))[-1], wire.Ready)
        yield console


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Path]:
    """A log as the service has it, and every library told to say all it knows."""
    set_up(level="DEBUG", file=tmp_path / "service.log", stderr=False)
    before = {name: logging.getLogger(name).level for name in LIBRARIES}
    for name in before:
        logging.getLogger(name).setLevel(logging.DEBUG)
    yield tmp_path / "service.log"
    tear_down()
    for name, level in before.items():
        logging.getLogger(name).setLevel(level)


def lines_of(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in log_files(log) for line in path.read_text("utf-8").splitlines()]


def ask(console: ConsoleThread, key: str, body: dict[str, Any], *, request_id: str = "") -> httpx2.Response:
    headers = {"Authorization": f"Bearer {key}"} | ({"x-request-id": request_id} if request_id else {})
    url = console.access().url
    return httpx2.post(f"{url}/v1/chat/completions", json=body, headers=headers, timeout=60, trust_env=False)


def test_no_key_prompt_answer_or_password_is_logged_at_debug_whoever_logs(
    console: ConsoleThread, log: Path, monkeypatch: pytest.MonkeyPatch, expected_logs: ExpectLogs,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    access = console.access()
    with AdminClient(access.url, access.token) as client:
        key = client.ask(calls.create_key("canary")).secret
        client.ask(calls.create_user("ada", password=PASSWORD))
        invite = client.ask(calls.create_invite()).text
        AdminClient.log_in(access.url, "ada", PASSWORD).close()
    message = {"role": "user", "content": PROMPT}
    body: dict[str, Any] = {"model": "small", "messages": [message], "max_tokens": 40, "temperature": 0}
    assert ANSWER in ask(console, key, body, request_id="canary-request").text
    assert ask(console, key, {**body, "stream": True}).text.endswith("data: [DONE]\n\n")
    assert ask(console, key, {**body, "messages": [PROMPT]}).status_code == 400
    assert ask(console, key, {**body, PROMPT: 1, "stop": [PROMPT] * 9}).status_code == 400
    assert ask(console, f"{key}x", body).status_code == 401

    def broken(self: ModelTokenizer, messages: list[dict[str, Any]], *_: object) -> list[int]:
        raise KeyError(messages[0]["content"])

    with monkeypatch.context() as patched:
        patched.setattr(ModelTokenizer, "encode_chat", broken)
        expected_logs("console.api.app", "failed unexpectedly")
        assert ask(console, key, body).status_code == 500
    # What libraries say at DEBUG differs from version to version; this is the worst of it.
    for name in LIBRARIES:
        logging.getLogger(name).debug("> Authorization: Bearer %s %s", key, PROMPT)
    logging.getLogger("console.api.app").info("An invite was %s and a key %s.", invite, key)

    assert PROMPT in caplog.text  # without the guard it would be there
    lines, text = lines_of(log), log.read_text("utf-8")
    secret = key.split("-", 2)[2]
    for canary in (PROMPT, PASSWORD, ANSWER, secret, access.token.split("-", 2)[2], invite.split(".")[1]):
        assert canary not in text
    assert not [line for line in lines if line["logger"].startswith(LIBRARIES)]
    (failed,) = [line for line in lines if "exception" in line]
    assert "KeyError (what it says is left out" in failed["exception"]
    assert failed["request"].startswith("req_")
    own = [line for line in lines if line.get("request") == "canary-request"]
    assert [line["logger"] for line in own] == [*["console.pipeline.coordinator"] * 2, "console.api.requests"]
    assert own[0]["stream"] == own[1]["stream"]
    assert own[0]["pipeline"] >= 0
    assert own[2]["message"].startswith("POST /v1/chat/completions: 200 in ")


def test_levels_are_changed_while_it_runs_and_the_audit_log_says_who_did(
    console: ConsoleThread, log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = ["--data", str(console.folder)]
    LEVELS_HERE.begin("INFO")

    def set_level(*words: str, code: int = 0) -> str:
        capsys.readouterr()
        assert main(["log-level", *words, *data]) == code
        said = capsys.readouterr()
        return said.out if code == 0 else said.err

    assert set_level() == "all: INFO\n"
    lowered = set_level("console.api.requests", "debug", "--for", "1h")
    assert lowered.startswith("all: INFO\nconsole.api.requests: DEBUG for ")
    assert re.search(r"DEBUG for 3[56]\d\d s more", set_level())
    assert "no logger of Fallow's" in set_level("websockets", "DEBUG", code=1)
    assert "which level" in set_level("console.fleet", code=2)
    assert set_level("WARNING").startswith("all: WARNING\n")
    assert any(line["logger"] == "console.api.requests" for line in lines_of(log))

    access = console.access()
    with AdminClient(access.url, access.token) as client:
        entries = [entry for entry in client.audit() if entry.action == "log.level"]
    assert [(entry.target, entry.detail) for entry in entries] == [
        ("all", {"level": "WARNING", "for_s": None}),
        ("console.api.requests", {"level": "DEBUG", "for_s": 3600.0}),
    ]
    assert all(entry.actor for entry in entries)


async def test_a_service_as_people_run_it_logs_into_its_folder_for_programs_and_to_the_terminal_for_people(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "console"
    command = [sys.executable, "-m", "console", "serve", "--data", str(folder), "--agents-port", "0", "--api-port", "0"]
    service = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    assert service.stdout is not None
    try:
        async with asyncio.timeout(60):
            while b"Data folder" not in await service.stdout.readline():
                pass
    finally:
        service.terminate()
        _, said = await service.communicate()
    file = folder / "service.log"
    assert [line["message"] for line in lines_of(file)][-1] == "Stopping."
    assert said.decode().splitlines()[-1].endswith("INFO console.serving: Stopping.")
    assert file.stat().st_mode & 0o777 == 0o600
