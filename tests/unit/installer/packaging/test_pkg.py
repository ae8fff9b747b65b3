"""The macOS package: what starts at login is what is installed, and everything is signed before it is packed."""

from __future__ import annotations

import plistlib
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from agent.cli import build_parser
from agent.settings import default_data_folder
from installer.packaging import pkg
from installer.packaging.pkg import AGENT, APP, LABELS, LAUNCH_AGENTS, PROGRAMS, SOURCES, Order, dry_run, main, make

MACH_O = b"\xcf\xfa\xed\xfe rest"
SIGNED = {
    "FALLOW_SIGN_APPLICATION": "Developer ID Application: X",
    "FALLOW_SIGN_INSTALLER": "Developer ID Installer: X",
    "FALLOW_NOTARY_PROFILE": "fleet",
}


@pytest.fixture
def order(tmp_path: Path) -> Order:
    """An order for a package of a made-up bundle: programs, a library, and a file that is no code."""
    bundle = tmp_path / "bundle"
    (bundle / "_internal").mkdir(parents=True)
    for name in (*PROGRAMS, "_internal/base.dylib"):
        (bundle / name).write_bytes(MACH_O)
    (bundle / "_internal" / "text.json").write_text("{}", encoding="utf-8")
    return Order(bundle, "1.2.3", tmp_path / "work", tmp_path / "out")


def plist(name: str) -> dict[str, object]:
    """One of the property lists, as the system reads it."""
    content: dict[str, object] = plistlib.loads((SOURCES / name).read_bytes())
    return content


def test_a_dry_run_names_every_file_and_command_and_changes_nothing(order: Order, tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    lines = dry_run(order, {})
    agent = f"install /{AGENT}"
    assert lines[:4] == [
        f"{agent}/_internal/base.dylib",
        f"{agent}/_internal/text.json",
        f"{agent}/fallow-agent",
        f"{agent}/fallow-tray",
    ]
    assert {f"install /{LAUNCH_AGENTS}/{label}.plist" for label in LABELS} < set(lines)
    assert [line.split()[1] for line in lines if line.startswith("run ")] == ["pkgbuild", "productbuild"]
    assert sorted(tmp_path.rglob("*")) == before


def test_everything_is_signed_by_itself_then_packed_then_checked_by_apple(order: Order) -> None:
    ran: list[list[str]] = []
    make(order, SIGNED, lambda command: ran.append(list(command)))
    assert [command[0] for command in ran] == [*["codesign"] * 4, "pkgbuild", "productbuild", "xcrun", "xcrun"]
    assert [Path(command[-1]).name for command in ran[:4]] == ["base.dylib", *PROGRAMS, "Fallow.app"]
    assert all("--entitlements" in command for command in ran[:3])
    assert ran[5][ran[5].index("--sign") + 1] == "Developer ID Installer: X"


def test_a_program_that_is_a_link_to_the_other_stays_one_and_is_signed_with_it(order: Order) -> None:
    (order.bundle / "fallow-tray").unlink()
    (order.bundle / "fallow-tray").symlink_to("fallow-agent")
    ran: list[list[str]] = []
    make(order, SIGNED, lambda command: ran.append(list(command)))
    assert [Path(command[-1]).name for command in ran[:3]] == ["base.dylib", "fallow-agent", "Fallow.app"]
    assert (order.root / AGENT / "fallow-tray").is_symlink()


def test_what_is_staged_is_what_starts_at_login(order: Order) -> None:
    def nothing(_: Sequence[str]) -> None:
        """Nothing is packed."""

    make(order, {}, nothing)
    for label in LABELS:
        launch = plistlib.loads((order.root / LAUNCH_AGENTS / f"{label}.plist").read_bytes())
        assert launch["Label"] == label
        program = order.root / launch["ProgramArguments"][0].lstrip("/")
        assert program.is_file()
    app = plistlib.loads((order.root / APP / "Contents" / "Info.plist").read_bytes())
    main_program = order.root / APP / "Contents" / "MacOS" / app["CFBundleExecutable"]
    assert main_program.stat().st_mode & 0o111
    assert f'"/{AGENT}/fallow-tray"' in main_program.read_text("utf-8")
    assert app["LSUIElement"] is True
    assert (app["CFBundleVersion"], app["CFBundleShortVersionString"]) == ("1.2.3", "1.2.3")


def test_the_agent_is_started_with_arguments_that_it_takes() -> None:
    arguments = plist("org.fallow.agent.plist")["ProgramArguments"]
    assert isinstance(arguments, list)
    options = build_parser().parse_args(arguments[1:])
    assert options.wait
    assert str(options.invite_file) == f"/{AGENT.parent}/enrol/invite.txt"


def test_agents_are_of_a_login_with_a_screen_and_the_failed_one_comes_back() -> None:
    agent = plist("org.fallow.agent.plist")
    assert agent["KeepAlive"] == {"SuccessfulExit": False}
    assert {plist(f"{label}.plist")["LimitLoadToSessionType"] for label in LABELS} == {"Aqua"}
    assert agent["Umask"] == 0o077


def test_the_runtime_may_write_code_and_nothing_else_is_asked_for() -> None:
    prefix = "com.apple.security.cs."
    assert plist("entitlements.plist") == {
        f"{prefix}allow-jit": True,
        f"{prefix}allow-unsigned-executable-memory": True,
    }


def test_the_distribution_refers_to_what_pkgbuild_makes() -> None:
    root = ET.fromstring(pkg.distribution("1.2.3"))
    choices = {choice.get("id") for choice in root.findall("choice")}
    assert {line.get("choice") for line in root.iter("line")} == choices
    (made,) = (ref for ref in root.findall("pkg-ref") if ref.text)
    assert (made.get("id"), made.get("version"), made.text) == (pkg.IDENTIFIER, "1.2.3", "agent.pkg")
    assert {ref.get("id") for ref in root.findall("choice/pkg-ref")} == {pkg.IDENTIFIER}
    assert root.find("domains[@enable_localSystem='true']") is not None


@pytest.mark.parametrize("name", ["scripts/preinstall", "scripts/postinstall", "uninstall.sh", "launcher.sh"])
def test_scripts_are_shell_and_may_be_run(name: str) -> None:
    script = SOURCES / name
    assert script.stat().st_mode & 0o111
    subprocess.run(["sh", "-n", script], check=True, timeout=60)


def test_scripts_speak_of_what_is_installed() -> None:
    before, after = ((SOURCES / "scripts" / name).read_text("utf-8") for name in ("preinstall", "postinstall"))
    removal = (SOURCES / "uninstall.sh").read_text("utf-8")
    for label in LABELS:
        assert f"/{LAUNCH_AGENTS}/{label}.plist" in after
        assert f"/{LAUNCH_AGENTS}/{label}.plist" in removal
        assert f"/{label}" in before
    assert f'"/{AGENT}"' in before
    assert f"/{APP}" in removal
    assert f"/{default_data_folder().name}" in removal
    assert "uninstall.sh --remove-identity" in (SOURCES / "README.md").read_text("utf-8")
    assert '= "--remove-identity"' in removal


@pytest.mark.skipif(shutil.which("plutil") is None, reason="plutil is on macOS only")
@pytest.mark.parametrize("path", sorted(SOURCES.glob("*.plist")), ids=lambda path: str(path.name))
def test_apples_own_tool_takes_the_property_lists(path: Path) -> None:
    subprocess.run(["plutil", "-lint", path], check=True, timeout=60)


def test_a_bundle_of_another_system_is_refused(order: Order, capsys: pytest.CaptureFixture[str]) -> None:
    (order.bundle / "fallow-tray").rename(order.bundle / "fallow-tray.exe")
    assert main([str(order.bundle), "--dry-run"]) == 1
    assert capsys.readouterr().err.endswith("has no fallow-tray; make the agent's bundle on macOS.\n")


def test_the_command_line_shows_a_dry_run(order: Order, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(order.bundle), "--dry-run", "--version", "9.8.7"]) == 0
    assert "fallow-agent-9.8.7.pkg" in capsys.readouterr().out
