"""Releases from the administrator's command line to a PC: offered, fetched, unpacked, tried, kept, or refused."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import io
import json
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from agent.devices import find_runtime
from agent.link.channel import Backoff
from agent.link.enrolment import enrol
from agent.link.invite import decode
from agent.link.keystore import Keystore
from agent.program import Program
from agent.service import AgentService
from agent.settings import AgentSettings
from agent.update.archives import pack
from agent.update.layout import Installation
from agent.update.permission import ROOT_NAME, Means
from agent.update.releases import encode_signed, own_platform
from console import cli
from console.service import ConsoleService, ServiceSettings
from installer.release_signing import new_key
from tests.support.agents import Children
from tests.support.enrolment import make_facts
from tests.support.patience import PATIENCE_S, until
from tests.support.releases import RELEASE_KEY, ROOT, make_archive, make_installation, make_release, versions_in

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the programs of these releases are scripts")
KEYS = Keystore.files_only("agent")
OWN = version("fallow")
"""What this tree says it is."""
REPOSITORY = Path(__file__).resolve().parents[2]
BUNDLE = REPOSITORY / "dist" / "fallow-agent"
AGENT = """#!{python}
import sys
from pathlib import Path
sys.path[:0] = [str(Path(__file__).resolve().parent / "_internal"), {repository!r}]
from agent.cli import main
sys.exit(main())
"""


@pytest.fixture
async def folder(tmp_path: Path) -> AsyncIterator[Path]:
    async with ConsoleService(ServiceSettings(folder=tmp_path / "console", keyring=False, heartbeat_s=PATIENCE_S)):
        yield tmp_path / "console"


@pytest.fixture(autouse=True)
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A folder for sockets, whose paths have to be short."""
    with tempfile.TemporaryDirectory(prefix="fw") as name:
        monkeypatch.setenv("XDG_RUNTIME_DIR", name)
        yield


async def run(folder: Path, *arguments: str, code: int = 0) -> Any:
    """Run a subcommand in a thread, as a person would beside the service; returns its JSON, or what went wrong."""

    def call() -> str:
        said, wrong = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(wrong):
            assert cli.main([*arguments, "--data", str(folder), "--json"]) == code
        return said.getvalue() or json.dumps(wrong.getvalue())

    return json.loads(await asyncio.to_thread(call))


async def add_release(folder: Path, files: Path, number: str, **changes: Any) -> str:
    """Build, sign and add a release; returns its id."""
    archive, packed = make_archive(files, number)
    signed = make_release(number, packed, **changes)
    file = files / f"{number}.release"
    file.write_bytes(encode_signed(signed))
    archive.rename(files / f"fallow-agent-{number}-{own_platform()}.tar.gz")
    return str((await run(folder, "releases", "add", str(file)))["release_id"])


@contextlib.asynccontextmanager
async def agent_running(folder: Path, data: Path, installation: Installation) -> AsyncIterator[Program]:
    """Run an agent that may update itself, of a machine nobody sits at."""
    text = (await run(folder, "invite", "--auto-approve"))["text"]
    data.mkdir()
    identity = await enrol(decode(text), data / "identity", make_facts(), keystore=KEYS)
    make = functools.partial(
        AgentService, start_child=Children(), list_devices=find_runtime, backoff=Backoff(uniform=lambda low, high: 0.05)
    )
    means = Means(installation, ROOT)
    program = Program(data, AgentSettings(volunteer="always"), KEYS, identity, make_service=make, means=means)
    task = asyncio.create_task(program.run())
    try:
        yield program
    finally:
        program.stop()
        await task


def phase_of(program: Program) -> str:
    return program._updates.progress.phase


async def update_of(folder: Path) -> str:
    (agent,) = await run(folder, "agents")
    return str(agent["update"])


async def test_a_release_reaches_a_pc_in_its_ring_and_is_ready_to_be_tried(folder: Path, tmp_path: Path) -> None:
    installation = make_installation(tmp_path / "fallow", OWN)
    release_id = await add_release(folder, tmp_path, "1.1.0", minimum_version="0.0.1")
    async with agent_running(folder, tmp_path / "data", installation) as program:
        await until(lambda: program._service is not None and program._service.link_phase == "up")
        assert (await run(folder, "releases", "list"))["releases"][0]["ring"] == "held"
        await run(folder, "releases", "ring", release_id, "canary")
        assert phase_of(program) == "none"
        await run(folder, "releases", "ring", release_id, "broad")
        await until(lambda: program.restarts)
    assert versions_in(installation) == [OWN, "1.1.0"]
    assert installation.current() == OWN
    assert phase_of(program) == "wanted"
    actions = [entry["action"] for entry in await run(folder, "audit", "list")]
    assert actions.count("release.ring") == 2
    assert "release.add" in actions


@pytest.mark.expected_logs("agent.update.updates", "not taken")
async def test_a_console_that_lies_convinces_no_pc(folder: Path, tmp_path: Path) -> None:
    installation = make_installation(tmp_path / "fallow", OWN)
    release_id = await add_release(folder, tmp_path, "1.1.0", minimum_version="0.0.1", key=new_key())
    async with agent_running(folder, tmp_path / "data", installation) as program:
        await until(lambda: program._service is not None and program._service.link_phase == "up")
        await run(folder, "releases", "ring", release_id, "broad")
        await until(lambda: "not signed" in program._updates.sentence)
        async with asyncio.timeout(PATIENCE_S):
            while "refused: " not in await update_of(folder):
                await asyncio.sleep(0.2)
        await run(folder, "releases", "withdraw", release_id)
        await until(lambda: program._updates.sentence == "No newer version was offered.")
    assert versions_in(installation) == [OWN]


async def test_what_is_no_release_is_not_added(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "x.release"
    assert "cannot be used" in await run(folder, "releases", "add", str(file), code=1)
    file.write_bytes(b"nothing")
    assert "cannot be read" in await run(folder, "releases", "add", str(file), code=1)
    archive, packed = make_archive(tmp_path, "1.1.0")
    file.write_bytes(encode_signed(make_release("1.1.0", packed, rollout_percent=20)))
    assert "cannot be used" in await run(folder, "releases", "add", str(file), code=1)
    beside = archive.rename(tmp_path / f"fallow-agent-1.1.0-{own_platform()}.tar.gz")
    content = beside.read_bytes()
    beside.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert "not the archive that was signed" in await run(folder, "releases", "add", str(file), code=1)
    beside.write_bytes(content)
    release_id = (await run(folder, "releases", "add", str(file)))["release_id"]
    assert "20 %" in await run(folder, "releases", "ring", release_id, "broad", "--percent", "50", code=1)
    assert "There is no release" in await run(folder, "releases", "withdraw", "abc", code=1)


def make_script_tree(folder: Path, number: str) -> Path:
    """A folder whose program is this tree's real agent, under another version."""
    about = folder / "_internal" / f"fallow-{number}.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: fallow\nVersion: {number}\n")
    program = folder / "fallow-agent"
    program.write_text(AGENT.format(python=sys.executable, repository=os.fspath(REPOSITORY)))
    program.chmod(0o755)
    (folder / ROOT_NAME).write_bytes(ROOT)
    return folder


def make_bundle_tree(folder: Path, number: str) -> Path:
    """The bundle that was built last, under another version."""
    shutil.copytree(BUNDLE, folder, symlinks=True)
    (about,) = (folder / "_internal").glob("fallow-*.dist-info")
    said = (about / "METADATA").read_text("utf-8")
    renamed = about.rename(about.with_name(f"fallow-{number}.dist-info"))
    (renamed / "METADATA").write_text(re.sub(r"^Version: .*$", f"Version: {number}", said, flags=re.MULTILINE), "utf-8")
    (folder / ROOT_NAME).write_bytes(ROOT)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    "make_agent_tree",
    [
        make_script_tree,
        pytest.param(
            make_bundle_tree,
            marks=pytest.mark.skipif(
                not BUNDLE.is_dir(), reason="there is no bundle of the agent: python installer/build.py agent"
            ),
        ),
    ],
    ids=["scripts", "bundles"],
)
async def test_a_real_agent_replaces_itself_through_a_console_and_goes_on(
    folder: Path, tmp_path: Path, make_agent_tree: Callable[[Path, str], Path]
) -> None:
    installation = Installation(tmp_path / "fallow", "fallow-agent")
    make_agent_tree(installation.folder("0.0.9"), "0.0.9")
    installation.switch("0.0.9")
    tree = make_agent_tree(tmp_path / "tree", "1.1.0")
    archive = tmp_path / f"fallow-agent-1.1.0-{own_platform()}.tar.gz"
    signed = make_release("1.1.0", pack(tree, archive), key=RELEASE_KEY, minimum_version="0.0.1")
    (tmp_path / "1.1.0.release").write_bytes(encode_signed(signed))
    release_id = (await run(folder, "releases", "add", str(tmp_path / "1.1.0.release")))["release_id"]
    invite = tmp_path / "invite"
    invite.write_text((await run(folder, "invite", "--auto-approve"))["text"])
    process = await asyncio.create_subprocess_exec(
        installation.current_program(), "run", "--volunteer", "always",
        "--data", tmp_path / "data", "--invite-file", invite,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    reading = asyncio.create_task(process.communicate())
    try:
        await agents_are(folder, "0.0.9", "connected")
        await run(folder, "releases", "ring", release_id, "broad")
        await agents_are(folder, "1.1.0", "connected")
        await until(lambda: installation.current() == "1.1.0")
        async with asyncio.timeout(PATIENCE_S):
            while await update_of(folder):
                await asyncio.sleep(0.2)
        (agent,) = await run(folder, "agents")
        assert agent["devices"] == ["CPU"]
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        _, log = await reading
    assert process.returncode == 0, log
    assert b"Version 1.1.0 works and is the current one." in log
    assert versions_in(installation) == ["0.0.9", "1.1.0"]


async def agents_are(folder: Path, number: str, link: str) -> None:
    """Wait until the one PC of the fleet runs a version."""
    async with asyncio.timeout(2 * PATIENCE_S):
        while True:
            agents = await run(folder, "agents")
            if [(agent["version"], agent["link"]) for agent in agents] == [(number, link)]:
                return
            await asyncio.sleep(0.3)
