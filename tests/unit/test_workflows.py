"""The workflows are what GitHub takes, as far as that shows here, and every command of ours in them exists."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent.link.invite import Invite, encode
from tests.support.documents import ROOT, Code, Judge

FILES = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
EACH = pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.name))
OURS = re.compile(r"(?:^|\s|[\\/])((?:python3?|fallow-[a-z]+)(?:\.exe)?\"?\s.*)$")
IN_TREE = re.compile(r"(?<![\w./\\-])((?:installer|tests|agent|console|assets|shard_export)(?:[/\\][\w.-]+)+)")


def workflow(path: Path) -> dict[Any, Any]:
    """The file's content; YAML 1.1 reads the key `on` as true."""
    document: dict[Any, Any] = yaml.safe_load(path.read_text("utf-8"))
    return document


def steps(path: Path) -> Iterator[dict[str, Any]]:
    """All steps of all jobs."""
    for job in workflow(path)["jobs"].values():
        yield from job["steps"]


def our_commands(path: Path) -> list[str]:
    """The commands of ours, as they would be written in a document."""
    lines = [line for step in steps(path) for line in step.get("run", "").replace("\\\n", " ").splitlines()]
    found = [match[1].strip() for line in lines if (match := OURS.search(line))]
    return [re.sub(r"^(python|fallow-[a-z]+)3?(?:\.exe)?\"?", r"\1", command) for command in found]


def test_there_is_one_for_each_system() -> None:
    assert {"linux.yml", "macos.yml", "windows.yml"} <= {path.name for path in FILES}


@EACH
def test_a_workflow_has_what_github_asks_for(path: Path) -> None:
    document = workflow(path)
    assert {"name", True, "permissions", "jobs"} <= set(document)
    assert document["permissions"] == {"contents": "read"}
    for job in document["jobs"].values():
        assert {"runs-on", "timeout-minutes", "steps"} <= set(job)
    for step in steps(path):
        assert ("uses" in step) != ("run" in step)
        assert "@v" in step.get("uses", "@v"), "an action has a version"


@EACH
def test_every_command_of_ours_exists(path: Path) -> None:
    commands = our_commands(path)
    assert commands
    judge = Judge()
    assert not [(command, fault) for command in commands for fault in judge.faults(Code(path.name, command))]


@EACH
def test_every_file_of_the_tree_that_is_named_exists(path: Path) -> None:
    named = {name.replace("\\", "/") for step in steps(path) for name in IN_TREE.findall(step.get("run", ""))}
    assert not [name for name in named if not (ROOT / name).exists()]


@EACH
def test_no_secret_is_in_a_command(path: Path) -> None:
    for step in steps(path):
        assert "secrets." not in step.get("run", ""), "hand it over in the environment"


def test_an_invitation_in_a_log_is_looked_for_as_it_is_written() -> None:
    searches = [
        match[1]
        for path in FILES
        for step in steps(path)
        for line in step.get("run", "").splitlines()
        if "the invitation is in the log" in line and (match := re.search(r'-Pattern "([^"]+)"', line))
    ]
    assert searches
    invitation = encode(
        Invite("1a2b3c4d5e6f", "corp", ["wss://c.example:8461"], bytes(32), b"token-id", bytes(16), 1_800_000_000)
    )
    assert all(re.search(pattern, f"ENROLL={invitation}") for pattern in searches)


def test_commands_are_found_and_wrong_ones_noticed(tmp_path: Path) -> None:
    path = tmp_path / "made-up.yml"
    path.write_text(
        'jobs: {one: {steps: [{run: "a\\n.venv\\\\Scripts\\\\fallow-console.exe serve --no-such\\n'
        'sudo .venv/bin/python3 -m installer.nothing\\n"}]}}',
        encoding="utf-8",
    )
    commands = our_commands(path)
    assert commands == ["fallow-console serve --no-such", "python -m installer.nothing"]
    assert all(Judge().faults(Code("made up", command)) for command in commands)
