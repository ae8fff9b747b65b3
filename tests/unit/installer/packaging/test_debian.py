"""What dpkg and systemd read: control files, scripts, units, launchers; checked by their own tools where these are."""

from __future__ import annotations

import itertools
import shutil
import subprocess
from pathlib import Path

import pytest

from agent.update.layout import who_manages
from installer.packaging import debbuild, debian
from installer.packaging.debian import AGENT, CHAT, CONSOLE, PACKAGES, Package
from installer.packaging.roles import ROLES

ROOT = Path(__file__).resolve().parents[4]
LINUX = Path(debian.__file__).parent / "linux"
LINKED = {"Depends": "libc6 (>= 2.36)", "Recommends": "libgl1"}
every_package = pytest.mark.parametrize("package", PACKAGES.values(), ids=list(PACKAGES))


def needs(tool: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(tool) is None, reason=f"{tool} is not installed")


def fields(text: str) -> dict[str, str]:
    return dict(line.split(": ", 1) for line in text.splitlines() if not line.startswith(" "))


def test_the_control_file_says_what_binaries_link_to_and_what_they_cannot_say() -> None:
    said = fields(debian.control(AGENT, "1.0-1", "amd64", size_kib=5, linked=LINKED, maintainer="A <a@example.org>"))
    assert said["Package"] == "fallow-agent"
    assert said["Depends"].startswith("libc6 (>= 2.36), adduser")
    assert said["Recommends"].startswith("libgl1, ocl-icd-libopencl1 | libopencl1")
    assert said["Installed-Size"] == "5"


@every_package
def test_a_description_is_as_policy_wants_it(package: Package) -> None:
    text = debian.control(package, "1.0-1", "amd64", size_kib=1, linked={}, maintainer="A <a@example.org>")
    _, _, description = text.partition("Description: ")
    summary, *lines = description.splitlines()
    assert len(summary) <= 80
    assert not summary.endswith(".")
    assert all(line.startswith(" ") and len(line) <= 80 for line in lines)
    assert "\n\n" not in text
    assert text.endswith("\n")


@pytest.mark.parametrize(
    ("python", "packaged"), [("1.2.3", "1.2.3-1"), ("1.2.0rc1", "1.2.0~rc1-1"), ("1.2.0.dev3", "1.2.0~dev3-1")]
)
def test_versions_sort_as_they_do_in_python(python: str, packaged: str) -> None:
    assert debian.debian_version(python, 1) == packaged


@needs("dpkg")
def test_dpkg_sorts_them_so() -> None:
    versions = [debian.debian_version(text, 1) for text in ("1.2.0.dev3", "1.2.0rc1", "1.2.0", "1.2.1")]
    for older, newer in itertools.pairwise(versions):
        assert subprocess.run(["dpkg", "--compare-versions", older, "lt", newer], check=False).returncode == 0


def test_what_only_windows_link_to_is_recommended() -> None:
    needs = {
        "fallow-agent": ["libc.so.6"],
        "_internal/openvino/libs/libopenvino.so": ["libtbb.so"],
        "_internal/openvino/libs/libtbb.so": [],
        "_internal/libssl.so": ["libcrypto.so"],
        "_internal/libcrypto.so": [],
        "_internal/lib-dynload/_ssl.so": ["libssl.so"],
        "_internal/PySide6/QtGui.so": ["libQt6Gui.so", "libglib.so"],
        "_internal/PySide6/Qt/lib/libQt6Gui.so": [],
        "_internal/libglib.so": ["libpcre.so", "libcrypto.so"],
        "_internal/libpcre.so": [],
    }
    assert debian.of_windows(needs) == [
        "_internal/PySide6/Qt/lib/libQt6Gui.so",
        "_internal/PySide6/QtGui.so",
        "_internal/libglib.so",
        "_internal/libpcre.so",
    ]


OBJDUMP = """
Dynamic Section:
  NEEDED               libc.so.6
  NEEDED               libz.so.1

Version definitions:
1 0x01 0x0865f4e6 libours.so

Version References:
  required from libc.so.6:
    0x09691a75 0x00 02 GLIBC_2.2.5
    0x069691b4 0x00 03 GLIBC_2.34
"""
SYMBOLS = """libother.so.1 libc6 #MINVER#
 GLIBC_2.99@GLIBC_2.99 2.99
libc.so.6 libc6 #MINVER#
| libc6 (>> 2.36)
 GLIBC_2.2.5@GLIBC_2.2.5 2.2.5
 GLIBC_2.34@GLIBC_2.34 2.34
 fopen@GLIBC_2.34 2.35
"""


def test_what_a_binary_links_to_is_read() -> None:
    needs = debian.needs_of(OBJDUMP)
    assert needs.libraries == ("libc.so.6", "libz.so.1")
    assert needs.versions == {"libc.so.6": ("GLIBC_2.2.5", "GLIBC_2.34")}


@pytest.mark.parametrize(
    ("versions", "since"), [(["GLIBC_2.2.5", "GLIBC_2.34"], "2.34"), (["GLIBC_2.2.5"], "2.2.5"), ([], ""), (["X"], "")]
)
def test_the_lowest_version_that_will_do_is_found(versions: list[str], since: str) -> None:
    assert debian.lowest_version(SYMBOLS, "libc.so.6", versions) == since


@pytest.mark.skipif(
    not shutil.which("dpkg-query") or not shutil.which("objdump"), reason="a Debian system with binutils"
)
def test_a_real_program_depends_on_the_real_packages(tmp_path: Path) -> None:
    home = tmp_path / CHAT.home
    home.mkdir(parents=True)
    shutil.copy("/bin/ls", home / "fallow-chat")
    linked = debbuild.linked_to(CHAT, tmp_path)
    assert "libc6 (>= 2." in linked["Depends"]
    assert "libselinux1" in linked["Depends"]
    assert linked["Recommends"] == ""


@every_package
def test_the_tree_of_a_package_is_what_a_pc_gets(package: Package, tmp_path: Path) -> None:
    bundle = tmp_path / "bundle"
    for name in ("_internal/lib.so", "licences/INDEX.txt", f"man/{package.name}.1", package.name):
        (bundle / name).parent.mkdir(parents=True, exist_ok=True)
        (bundle / name).write_bytes(b"\x7fELF")
    tree = tmp_path / "tree"
    debbuild.lay_out(package, bundle, ROOT, tree, "1.0-1")
    program = tree / "usr/bin" / package.name
    assert program.resolve() == tree / package.home / package.name
    assert program.stat().st_mode & 0o777 == 0o755
    assert (tree / package.home / "_internal/lib.so").stat().st_mode & 0o777 == 0o644
    modules = {one.name: one.module for one in ROLES[package.role].programs}
    for name in [name for name, module in modules.items() if module == modules[package.name]]:
        assert (tree / f"usr/share/man/man1/{name}.1.gz").exists()
    assert not (tree / package.home / "man").exists()
    assert who_manages(program) == "deb"
    for place in package.integration.values():
        assert (tree / place).stat().st_mode & 0o777 == 0o644
    inside = [file.relative_to(tree).as_posix() for file in tree.rglob("etc/**/*") if file.is_file()]
    assert sorted(inside) == sorted(package.conffiles)
    documents = {file.name for file in (tree / "usr/share/doc" / package.name).iterdir()}
    assert {"copyright", "changelog.Debian.gz"} <= documents


def test_packages_can_be_installed_together(tmp_path: Path) -> None:
    places: list[str] = []
    for package in PACKAGES.values():
        bundle = tmp_path / package.role / "bundle"
        (bundle / "man").mkdir(parents=True)
        (bundle / package.name).write_bytes(b"\x7fELF")
        tree = tmp_path / package.role / "tree"
        debbuild.lay_out(package, bundle, ROOT, tree, "1.0-1")
        files = [path.relative_to(tree) for path in tree.rglob("*") if not path.is_dir() or path.is_symlink()]
        places += [file.as_posix() for file in files if file.parts[0] != "DEBIAN"]
    assert len(places) == len(set(places))


@every_package
def test_launchers_name_an_icon_and_a_program_of_their_package(package: Package) -> None:
    text = (package.source / f"{package.launcher}.desktop").read_text("utf-8")
    assert f"\nIcon={package.launcher}\n" in text
    names = {program.name for program in ROLES[package.role].programs}
    assert text.partition("\nExec=")[2].split()[0] in names


@every_package
def test_maintainer_scripts_are_shell_and_know_their_arguments(package: Package) -> None:
    for name in package.scripts:
        text = (package.source / name).read_text("utf-8")
        assert text.startswith("#!/bin/sh\n")
        assert "set -e" in text
        assert subprocess.run(["sh", "-n", package.source / name], check=False).returncode == 0
        done = subprocess.run(["sh", package.source / name, "nonsense"], capture_output=True, text=True, check=False)
        assert (done.returncode, "unknown argument" in done.stderr) == (1, True)


@pytest.mark.parametrize("package", [AGENT, CONSOLE], ids=["agent", "console"])
def test_what_was_ended_for_a_change_that_failed_is_started_again(package: Package) -> None:
    arms = (package.source / "postinst").read_text("utf-8").partition('case "$1" in')[2]
    (failed,) = [arm for arm in arms.split(";;") if "abort-" in arm]
    for what in ("abort-upgrade", "abort-remove", "abort-deconfigure"):
        assert what in failed
    assert "\n    start_" in failed


def test_only_packages_with_a_service_have_scripts() -> None:
    assert CHAT.scripts == []
    assert AGENT.scripts == CONSOLE.scripts == ["prerm", "postinst", "postrm"]


@every_package
def test_removing_keeps_the_identity_and_purging_does_not(package: Package) -> None:
    for name in package.scripts:
        removed, _, rest = (package.source / name).read_text("utf-8").partition("\npurge)")
        assert "rm -rf" not in removed
        assert ("rm -rf /var/lib/fallow" in rest) == (name == "postrm")


@needs("systemd-analyze")
@pytest.mark.parametrize("unit", sorted(LINUX.glob("*/*.service")), ids=lambda path: f"{path.parent.name}-{path.name}")
def test_systemd_understands_the_units(unit: Path, tmp_path: Path) -> None:
    name = "fallow-console.service" if unit.parent.name == "console" else "fallow-agent.service"
    # The programs and manual pages of the package are not installed here; everything else has to be right.
    text = (
        unit.read_text("utf-8")
        .replace("/usr/bin/fallow-agent", "/bin/true")
        .replace("/usr/bin/fallow-console", "/bin/true")
    )
    (tmp_path / name).write_text(
        "".join(line for line in text.splitlines(True) if not line.startswith("Documentation="))
    )
    scope = ["--user"] if unit.stem == "user" else []
    done = subprocess.run(
        ["systemd-analyze", *scope, "verify", "--man=no", "--recursive-errors=no", str(tmp_path / name)],
        capture_output=True, text=True, check=False, env={"PATH": "/usr/bin:/bin", "XDG_RUNTIME_DIR": str(tmp_path)},
    )  # fmt: skip
    assert name not in done.stderr, done.stderr
    assert done.returncode == 0, done.stderr


@needs("desktop-file-validate")
@pytest.mark.parametrize("launcher", sorted(LINUX.glob("*/*.desktop")), ids=lambda path: path.name)
def test_launchers_are_valid(launcher: Path) -> None:
    done = subprocess.run(["desktop-file-validate", launcher], capture_output=True, text=True, check=False)
    assert done.stdout == ""
    assert done.returncode == 0


@needs("appstreamcli")
@pytest.mark.parametrize("described", sorted(LINUX.glob("*/metainfo.xml")), ids=lambda path: path.parent.name)
def test_software_centres_understand_the_descriptions(described: Path) -> None:
    command = ["appstreamcli", "validate", "--no-net", "--no-color", str(described)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@every_package
def test_every_file_for_the_system_goes_somewhere(package: Package) -> None:
    taken = {*package.integration, *package.scripts, "README.Debian"}
    assert {path.name for path in package.source.iterdir()} <= taken
