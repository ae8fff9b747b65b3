"""A package is made in order: programs signed, packed, the package signed; and a dry run shows it without doing it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from installer.packaging import msi
from installer.packaging.errors import BuildFailed, PackagingError
from installer.packaging.freezing import project_version
from installer.packaging.msi import PROGRAMS, Order, commands, dry_run, main, make
from installer.packaging.signing import codesign_command, notary_commands, signtool_command
from installer.packaging.tools import ROOT, run_tool
from installer.packaging.wix import Scope

THUMBPRINT = "0123456789abcdef0123456789ABCDEF01234567"


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """A bundle of the agent as a build leaves it, with nothing in its files."""
    folder = tmp_path / "bundle"
    for name in (*PROGRAMS, "_internal/base.dll", "licences/LICENSE.txt"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    return folder


def order(bundle: Path, scope: Scope = "machine") -> Order:
    """An order for a package of this bundle."""
    return Order(bundle, scope, "1.2.3", bundle.parent / "work", bundle.parent / "out")


def test_a_dry_run_names_every_file_and_command_and_changes_nothing(bundle: Path) -> None:
    before = sorted(bundle.parent.rglob("*"))
    lines = dry_run(order(bundle), {})
    assert [line.split()[1] for line in lines if line.startswith("install ")] == [
        "_internal/base.dll", "fallow-agent.exe", "fallow-tray.exe", "licences/LICENSE.txt",
    ]  # fmt: skip
    assert [line.split()[1] for line in lines if line.startswith("write ")] == [
        "files.wxs", "agent-task.xml", "fallow.admx", "en-US/fallow.adml", "de-DE/fallow.adml", "es-ES/fallow.adml",
    ]  # fmt: skip
    assert [line.split()[1] for line in lines if line.startswith("run ")] == ["wix"]
    assert sorted(bundle.parent.rglob("*")) == before


def test_what_is_written_is_what_the_sources_name(bundle: Path) -> None:
    ran: list[Sequence[str]] = []
    package = make(order(bundle), {}, ran.append)
    assert package.name == "fallow-agent-1.2.3-x64.msi"
    work = bundle.parent / "work"
    source = (msi.SOURCES / "agent.wxs").read_text("utf-8")
    for part in source.split("$(Work)\\")[1:]:
        assert (work / part.partition('"')[0].replace("\\", "/")).is_file()
    ((*_, own, generated),) = ran
    assert (own, generated) == (str(msi.SOURCES / "agent.wxs"), str(work / "files.wxs"))
    assert {f"Bundle={bundle}", f"Work={work}", "Version=1.2.3"} <= set(ran[0])


def test_a_package_for_one_user_needs_no_task_and_no_templates(bundle: Path) -> None:
    lines = dry_run(order(bundle, scope="user"), {})
    assert [line.split()[1] for line in lines if line.startswith("write ")] == ["files.wxs"]
    assert "agent-user.wxs" in lines[-1]
    assert "-x64-user.msi" in lines[-1]


def test_programs_are_signed_before_they_are_packed_and_the_package_last(bundle: Path) -> None:
    todo = commands(order(bundle), {"FALLOW_SIGN_THUMBPRINT": THUMBPRINT})
    assert [command[0] for command in todo] == ["signtool", "wix", "signtool"]
    assert [Path(file).name for file in todo[0][-2:]] == list(PROGRAMS)
    assert todo[2][-1].endswith(".msi")


def test_signing_by_certificate_and_by_azure() -> None:
    file = Path("a.exe")
    by_certificate = signtool_command({"FALLOW_SIGN_THUMBPRINT": THUMBPRINT}, [file])
    assert by_certificate[by_certificate.index("/sha1") + 1] == THUMBPRINT
    azure = {"FALLOW_SIGN_DLIB": "dlib.dll", "FALLOW_SIGN_METADATA": "account.json", "AZURE_CLIENT_SECRET": "s3cret"}
    by_azure = signtool_command(azure, [file])
    assert by_azure[by_azure.index("/dlib") + 1] == "dlib.dll"
    assert by_azure[by_azure.index("/dmdf") + 1] == "account.json"
    assert not any("s3cret" in word for word in by_azure)
    assert signtool_command({}, [file]) == []


@pytest.mark.parametrize(
    ("environment", "why"),
    [
        ({"FALLOW_SIGN_THUMBPRINT": "password"}, "40 hexadecimal digits"),
        ({"FALLOW_SIGN_DLIB": "dlib.dll"}, "needs both"),
        ({"FALLOW_SIGN_THUMBPRINT": THUMBPRINT, "FALLOW_SIGN_METADATA": "a"}, "one only"),
    ],
)
def test_half_of_what_signing_needs_is_refused(environment: dict[str, str], why: str) -> None:
    with pytest.raises(PackagingError, match=why):
        signtool_command(environment, [Path("a.exe")])


def test_signing_on_macos_names_identities_and_never_a_password() -> None:
    named = {"FALLOW_SIGN_APPLICATION": "Developer ID Application: X", "FALLOW_NOTARY_PROFILE": "fleet"}
    command = codesign_command(named, Path("fallow-agent"), Path("entitlements.plist"))
    assert command[command.index("--sign") + 1] == "Developer ID Application: X"
    assert command[command.index("--options") + 1] == "runtime"
    submit, staple = notary_commands(named, Path("a.pkg"))
    assert submit[submit.index("--keychain-profile") + 1] == "fleet"
    assert staple[:3] == ["xcrun", "stapler", "staple"]
    assert codesign_command({}, Path("x"), None) == []
    assert notary_commands({}, Path("a.pkg")) == []


def test_a_bundle_of_another_system_is_refused(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (bundle / PROGRAMS[1]).rename(bundle / "fallow-tray")
    assert main([str(bundle), "--dry-run"]) == 1
    assert capsys.readouterr().err.endswith("has no fallow-tray.exe; make the agent's bundle on Windows.\n")


def test_the_command_line_shows_a_dry_run(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(bundle), "--dry-run", "--scope", "user"]) == 0
    assert f"-{project_version(ROOT)}-x64-user.msi" in capsys.readouterr().out


def test_a_tool_that_is_missing_or_fails_is_one_sentence() -> None:
    with pytest.raises(BuildFailed, match="not installed"):
        run_tool(["fallow-no-such-tool"])
    with pytest.raises(BuildFailed, match="ended with code 1"):
        run_tool(["false"])
