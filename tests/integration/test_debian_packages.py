"""The Debian packages in a fresh Debian: installed, enrolled, serving, upgraded, removed, purged, all for real."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from console.api.admin import types as wire
from installer.loopback import LoopbackFleet
from installer.packaging import debbuild
from installer.packaging.debian import PACKAGES
from tests.support.debian_root import DebianRoot, RootUnavailable, debian_root
from tests.support.patience import PATIENCE_S

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2400)]
ROOT = Path(__file__).resolve().parents[2]
OWNER, MACHINE = "employee", "fallow-agent"
HOMES = {OWNER: f"/home/{OWNER}/.local/share/fallow-agent", MACHINE: "/var/lib/fallow-agent"}
ENABLED = "/etc/systemd/user/graphical-session.target.wants/fallow-agent.service"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DebianRoot]:
    if shutil.which("objdump") is None or shutil.which("dpkg-deb") is None:
        pytest.skip("binutils and dpkg are not installed")
    try:
        with debian_root(tmp_path_factory.mktemp("debian") / "root") as made:
            made.run("useradd", "--create-home", OWNER)
            yield made
    except RootUnavailable as error:
        pytest.skip(str(error))


def package(role: str) -> Path:
    """Return the package of a role: the one in dist/, or made now, which takes minutes."""
    made = subprocess.run(
        [sys.executable, "installer/build.py", role, "--as", "deb", "--if-missing"],
        cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    return Path(made.stdout.strip())


def next_version(older: Path, folder: Path) -> Path:
    """Make the same package with a higher version."""
    tree, newer = folder / "tree", folder / f"newer-{older.name}"
    subprocess.run(["dpkg-deb", "--raw-extract", older, tree], check=True)
    control = tree / "DEBIAN" / "control"
    control.write_text(control.read_text().replace("\nVersion: ", "\nVersion: 99+"))
    subprocess.run(
        ["dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "--build", tree, newer],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    shutil.rmtree(tree)
    return newer


def serve(root: DebianRoot, folder: Path) -> list[subprocess.Popen[bytes]]:
    """Start the owner's agent and the machine's."""
    return [
        root.start(
            "fallow-agent", "run", "--data", home, "--volunteer", "always", "--threads", "1",
            user=user, log=folder / f"{user}.log",
        )
        for user, home in HOMES.items()
    ]  # fmt: skip


def enrol(root: DebianRoot, fleet: LoopbackFleet) -> None:
    """Let both agents join with an invitation in a file, which is gone afterwards."""
    for user, home in HOMES.items():
        invite = root.folder / "tmp" / "invite.txt"
        invite.write_text(fleet.admin.create_invite(uses=1, hours=1.0, auto_approve=True).text)
        invite.chmod(0o666)
        root.run(
            "fallow-agent", "enrol", "--data", home, "--name", f"pc-of-{user}", "--invite-file", "/tmp/invite.txt",
            user=user,
        )  # fmt: skip
        invite.unlink()


def test_an_agent_is_installed_enrolled_upgraded_removed_and_purged(
    root: DebianRoot, tmp_path: Path, smollm2_library: Path
) -> None:
    first = package("agent")
    root.install(first)
    assert root.holds("/usr/bin/fallow-agent")
    assert root.holds(ENABLED)
    agents: list[subprocess.Popen[bytes]] = []
    with LoopbackFleet(tmp_path / "fleet", []) as fleet:
        try:
            enrol(root, fleet)
            agents = serve(root, tmp_path)
            before = {agent.name: agent.device_id for agent in fleet.wait_for_agents(2)}
            assert set(before) == {"pc-of-employee", "pc-of-fallow-agent"}
            model = fleet.admin.add_library(smollm2_library).model_id
            fleet.deploy(wire.DeployRequest(model, stages=2, context=256, streams=1, draft="none"))
            said = fleet.chat("What is the capital of France?", max_tokens=8, temperature=0).text
            assert said.strip()

            root.install(next_version(first, tmp_path))
            for agent in agents:
                assert agent.wait(PATIENCE_S) == 0  # asked to stop, not killed
            assert "99+" in root.run("dpkg-query", "-W", "-f", "${Version}", "fallow-agent")
            agents = serve(root, tmp_path)
            after = {agent.name: agent.device_id for agent in fleet.wait_for_agents(2)}
            assert after == before
            until_served(fleet)
            assert fleet.chat("What is the capital of France?", max_tokens=8, temperature=0).text == said

            root.remove("fallow-agent")
            for agent in agents:
                assert agent.wait(PATIENCE_S) == 0
        finally:
            for agent in agents:
                if agent.poll() is None:
                    os.killpg(agent.pid, signal.SIGKILL)
                    agent.wait()
    for gone in ("/usr/bin/fallow-agent", "/usr/lib/fallow-agent", "/usr/lib/systemd/user/fallow-agent.service"):
        assert not root.holds(gone)
    for home in HOMES.values():
        assert root.holds(f"{home}/identity")
    root.remove("fallow-agent", purge=True)
    assert root.named("fallow") == [HOMES[OWNER]]
    assert "fallow" not in (root.folder / "etc/passwd").read_text()


def until_served(fleet: LoopbackFleet) -> None:
    """Wait until the model is back after its PCs were."""
    deadline_s = time.monotonic() + 2 * PATIENCE_S
    while not any(one.state == "ready" for one in fleet.admin.status().pipelines):
        assert time.monotonic() < deadline_s, fleet.log_tail("console")
        time.sleep(0.2)


def test_a_console_is_installed_runs_and_loses_its_fleet_only_when_purged(root: DebianRoot, tmp_path: Path) -> None:
    root.install(package("console"))
    serving = root.start(
        "fallow-console", "--data", "/var/lib/fallow", "serve", "--json", "--api-port", "0", "--agents-port", "0",
        user="fallow", log=tmp_path / "console.log", output=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert serving.stdout is not None
        line = serving.stdout.readline()
        assert line, (tmp_path / "console.log").read_text()
        assert json.loads(line)["api_url"].startswith("http")
        asked = root.run("fallow-console", "--data", "/var/lib/fallow", "status", "--json", user="fallow")
        assert json.loads(asked)["api_url"] == json.loads(line)["api_url"]
    finally:
        serving.terminate()
        assert serving.wait(PATIENCE_S) in (0, -15)
        if serving.stdout is not None:
            serving.stdout.close()
    root.remove("fallow-console")
    assert root.holds("/var/lib/fallow/registry.sqlite")
    assert not root.holds("/usr/lib/fallow-console")
    root.remove("fallow-console", purge=True)
    assert [path for path in root.named("fallow") if not path.startswith(f"/home/{OWNER}")] == []


def test_a_chat_is_installed_finds_its_libraries_and_is_gone_when_removed(root: DebianRoot) -> None:
    root.install(package("chat"))
    assert "fallow-chat" in root.run("fallow-chat", "--version", user=OWNER, QT_QPA_PLATFORM="offscreen")
    root.remove("fallow-chat", purge=True)
    assert [path for path in root.named("fallow") if not path.startswith(f"/home/{OWNER}")] == []


@pytest.mark.skipif(shutil.which("lintian") is None, reason="lintian is not installed")
@pytest.mark.parametrize("role", list(PACKAGES))
def test_lintian_finds_nothing_that_is_not_explained(role: str) -> None:
    assert debbuild.lintian([package(role)], ROOT) == []
