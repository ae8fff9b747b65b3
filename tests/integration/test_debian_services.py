"""The units of the Debian packages under a systemd that runs: they start, come back after an upgrade, and go."""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from console.api.admin import types as wire
from installer.loopback import LoopbackFleet
from installer.packaging.debian import PACKAGES, Package
from tests.integration.test_debian_packages import HOMES, OWNER, next_version, package, until_served
from tests.support.booted_root import BootedRoot, booted_root
from tests.support.debian_root import APT_S, RootUnavailable
from tests.support.patience import PATIENCE_S
from tests.support.screens import x_server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2400)]
UNIT = "fallow-agent.service"
STATE = ("show", "--property=ActiveState,NRestarts")
CALM = {"ActiveState=active", "NRestarts=0"}
"""It runs, and did not have to be started twice."""
OFF = "ActiveState=inactive"
ICON = r"app-fallow\x2dtray@autostart.service"
"""What systemd makes of the launcher that starts the tray with the desktop."""
WHAT_WINDOWS_NEED = "dpkg-query -W -f '${Recommends}' fallow-agent | tr ',' '\\n' | sed 's/[(|].*//'"
SPEAKERS = [f"--identifier={name}" for name in ("systemd", "fallow-agent", "fallow-console")]
NO_PORTS = "[Service]\nEnvironment='FALLOW_CONSOLE_OPTIONS=--api-port 0 --agents-port 0'\n"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BootedRoot]:
    if shutil.which("objdump") is None or shutil.which("dpkg-deb") is None:
        pytest.skip("binutils and dpkg are not installed")
    try:
        with booted_root(tmp_path_factory.mktemp("debian") / "root") as made:
            made.run("useradd", "--create-home", "--shell", "/bin/bash", OWNER)
            made.log_in(OWNER)
            yield made
    except RootUnavailable as error:
        pytest.skip(str(error))


def wait_for(condition: Callable[[], object], root: BootedRoot, what: str) -> None:
    """Wait for something that another machine's systemd does; fails with what its units said."""
    deadline_s = time.monotonic() + 2 * PATIENCE_S
    while not condition():
        if time.monotonic() > deadline_s:
            pytest.fail(f"{what}\n{root.run('journalctl', '--no-pager', '--lines=60', *SPEAKERS)}")
        time.sleep(0.2)


def state_of(root: BootedRoot, user: str) -> set[str]:
    """What systemd says of the agent's unit of a user, the machine's for root."""
    return set(root.systemctl(*STATE, UNIT, user=user).split())


def give_invitation(root: BootedRoot, fleet: LoopbackFleet, place: str) -> str:
    """Hand an invitation over: to the owner in their home, to the machine's administrator in theirs."""
    file = root.folder / place.lstrip("/")
    file.write_text(fleet.admin.create_invite(uses=1, hours=1.0, auto_approve=True).text)
    if place.startswith("/home"):
        root.run("chown", OWNER, place)
    file.chmod(0o600)
    return place


def documented(package: Package, word: str) -> str:
    """Return the commands of a package's README.Debian that have a word in them, as they are written there."""
    text = (package.source / "README.Debian").read_text("utf-8")
    blocks = ["\n".join(lines) for is_code, lines in itertools.groupby(text.splitlines(), is_command) if is_code]
    (found,) = [block for block in blocks if word in block]
    return found


def is_command(line: str) -> bool:
    return line.startswith("    ")


def broken_version(older: Path, folder: Path) -> Path:
    """Make a newer package that cannot be installed, as on a disk without room."""
    newer = next_version(older, folder)
    tree, broken = folder / "tree", folder / f"broken-{older.name}"
    subprocess.run(["dpkg-deb", "--raw-extract", newer, tree], check=True)
    newer.unlink()
    script = tree / "DEBIAN" / "preinst"
    script.write_text("#!/bin/sh\nexit 1\n")
    script.chmod(0o755)
    command = ["dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "--build", str(tree), str(broken)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    shutil.rmtree(tree)
    return broken


def connected(fleet: LoopbackFleet) -> dict[str, str]:
    """The PCs that are there, and which they are."""
    return {agent.name: agent.device_id for agent in fleet.admin.agents() if agent.link == "connected"}


def test_both_units_of_the_agent_run_come_back_after_any_upgrade_and_go(
    root: BootedRoot, tmp_path: Path, smollm2_library: Path
) -> None:
    first = package("agent")
    root.install(first)
    wait_for(lambda: state_of(root, OWNER) == CALM, root, "the owner's agent did not start with the package")
    assert OFF in state_of(root, "root")
    with LoopbackFleet(tmp_path / "fleet", []) as fleet:
        invite = give_invitation(root, fleet, f"/home/{OWNER}/invite.txt")
        root.run("fallow-agent", "enrol", "--name", OWNER, "--invite-file", invite, "--delete-invite-file", user=OWNER)
        assert not root.holds(invite)
        invite = give_invitation(root, fleet, "/root/invite.txt")
        root.run("sh", "-ec", documented(PACKAGES["agent"], "systemd-creds").replace("FILE", invite))
        wait_for(lambda: len(connected(fleet)) == 2, root, "the agents did not connect")
        before = connected(fleet)
        protected = {agent.name: agent.key_protection for agent in fleet.admin.agents()}
        assert sorted(protected.values()) == ["credential", "file"]
        assert protected[OWNER] == "file"
        fleet.wait_for_agents(1)  # the machine's: its owner's waits, because nobody can say whether they are away
        model = fleet.admin.add_library(smollm2_library).model_id
        fleet.deploy(wire.DeployRequest(model, stages=1, context=256, streams=1, draft="none"))
        said = fleet.chat("What is the capital of France?", max_tokens=8, temperature=0).text
        assert said.strip()

        with pytest.raises(AssertionError):
            root.install(broken_version(first, tmp_path))
        come_back(root, fleet, before)
        root.install(next_version(first, tmp_path))
        assert "99+" in root.run("dpkg-query", "-W", "-f", "${Version}", "fallow-agent")
        come_back(root, fleet, before)
        until_served(fleet)
        assert fleet.chat("What is the capital of France?", max_tokens=8, temperature=0).text == said

        root.remove("fallow-agent", purge=True)
        wait_for(lambda: not connected(fleet), root, "an agent of a package that is gone still runs")
    assert OFF in state_of(root, "root") & state_of(root, OWNER)
    assert root.named("fallow") == ["/etc/credstore.encrypted/fallow.key", HOMES[OWNER]]


def test_the_icon_of_an_open_desktop_is_back_after_an_upgrade(root: BootedRoot, tmp_path: Path) -> None:
    first = package("agent")
    root.install(first)
    root.run("sh", "-ec", f"apt-get install -y --no-install-recommends $({WHAT_WINDOWS_NEED})", timeout_s=APT_S)
    with x_server() as screen:
        root.systemctl("set-environment", f"DISPLAY={screen.environment['DISPLAY']}", user=OWNER)
        root.systemctl("start", ICON, user=OWNER)
        was = main_process(root)
        root.install(next_version(first, tmp_path))
        wait_for(lambda: main_process(root) not in ("0", was), root, "the icon did not come back")
        root.remove("fallow-agent", purge=True)
        assert main_process(root) == "0"


def main_process(root: BootedRoot) -> str:
    """The number of the process of the tray that the desktop started; 0 where there is none."""
    return root.systemctl("show", "--property=MainPID", "--value", ICON, user=OWNER).strip()


def come_back(root: BootedRoot, fleet: LoopbackFleet, before: dict[str, str]) -> None:
    """Wait until both agents are there again, by themselves, as the same PCs."""
    wait_for(lambda: state_of(root, OWNER) == CALM, root, "the owner's agent did not start again")
    wait_for(lambda: state_of(root, "root") == CALM, root, "the machine's agent did not start again")
    wait_for(lambda: connected(fleet) == before, root, "the agents did not connect again")


def test_a_console_starts_with_its_package_and_its_commands_are_as_written(root: BootedRoot, tmp_path: Path) -> None:
    # This machine's network is shared with other tests: no fixed ports.
    drop_in = root.folder / "etc/systemd/system/fallow-console.service.d/ports.conf"
    drop_in.parent.mkdir(parents=True)
    drop_in.write_text(NO_PORTS)
    first = package("console")
    root.install(first)
    serving = ("fallow-console", "--data", "/var/lib/fallow")
    unit = (*STATE, "fallow-console.service")
    wait_for(lambda: answers(root, serving), root, "the console did not start with its package")
    assert set(root.systemctl(*unit).split()) == CALM
    assert root.run("sh", "-ec", documented(PACKAGES["console"], " invite")).startswith("fallow1.")
    root.run("sh", "-ec", documented(PACKAGES["console"], "systemd-creds"))
    wait_for(lambda: answers(root, serving), root, "the console did not start with a credential")
    kept = root.folder / "var/lib/fallow"
    assert [path for path in kept.rglob("*") if path.is_file() and b'"credential"' in path.read_bytes()]
    with pytest.raises(AssertionError):
        root.install(broken_version(first, tmp_path))
    wait_for(lambda: answers(root, serving), root, "the console did not start again after a failed upgrade")
    root.install(next_version(first, tmp_path))
    wait_for(lambda: answers(root, serving), root, "the console did not start again after an upgrade")
    assert set(root.systemctl(*unit).split()) == CALM
    root.remove("fallow-console", purge=True)
    assert OFF in root.systemctl(*unit)
    assert not root.holds("/var/lib/fallow")


def answers(root: BootedRoot, serving: tuple[str, ...]) -> bool:
    """Whether the console of the package says what address it has."""
    done = subprocess.run(root.command([*serving, "status", "--json"], "fallow"), capture_output=True, check=False)
    return done.returncode == 0 and bool(json.loads(done.stdout)["api_url"])
