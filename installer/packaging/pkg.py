"""A macOS package of the agent: `python -m installer.packaging.pkg BUNDLE [--dry-run]`.

Needs Apple's command line tools on macOS; a dry run needs nothing, and shows every file and command. What is signed and
notarised, and by whom, is in `signing.py`: each program and library by itself before it is packed, then the package.
"""

from __future__ import annotations

import argparse
import os
import plistlib
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from installer.packaging.errors import PackagingError
from installer.packaging.freezing import project_version
from installer.packaging.signing import codesign_command, notary_commands
from installer.packaging.tools import ROOT, Run, run_tool

SOURCES = Path(__file__).with_name("macos")
PROGRAMS = ("fallow-agent", "fallow-tray")
AGENT, APP = PurePosixPath("Library/Application Support/Fallow/Agent"), PurePosixPath("Applications/Fallow.app")
LAUNCH_AGENTS = PurePosixPath("Library/LaunchAgents")
LABELS = ("org.fallow.agent", "org.fallow.tray")
IDENTIFIER = "org.fallow.agent"
_VERSION = "VERSION"
_MACH_O = frozenset(bytes.fromhex(magic) for magic in ("feedface feedfacf cefaedfe cffaedfe cafebabe".split()))  # noqa: SIM905 - magic numbers


@dataclass(frozen=True)
class Order:
    """One package to make: of which bundle, which version, where it goes."""

    bundle: Path
    version: str
    work: Path
    out: Path

    @property
    def root(self) -> Path:
        """What becomes `/` on the Mac."""
        return self.work / "root"

    @property
    def package(self) -> Path:
        """The file that is made."""
        return self.out / f"fallow-agent-{self.version}.pkg"


def payload(order: Order) -> dict[PurePosixPath, bytes]:
    """Return what is installed beside the bundle: the app around the tray, and what starts both at login."""
    launcher = (SOURCES / "launcher.sh").read_bytes()
    files = {
        APP / "Contents" / "Info.plist": info(order.version),
        APP / "Contents" / "MacOS" / "Fallow": launcher,
        AGENT.parent / "uninstall.sh": (SOURCES / "uninstall.sh").read_bytes(),
    }
    for label in LABELS:
        files[LAUNCH_AGENTS / f"{label}.plist"] = (SOURCES / f"{label}.plist").read_bytes()
    return files


def info(version: str) -> bytes:
    """Return the app's Info.plist."""
    whole = plistlib.loads((SOURCES / "Info.plist").read_bytes())
    shown = {name: version if value == _VERSION else value for name, value in whole.items()}
    return plistlib.dumps(shown)


def distribution(version: str) -> str:
    """Return what productbuild is told."""
    return (SOURCES / "distribution.xml").read_text("utf-8").replace(_VERSION, version)


def is_code(path: Path) -> bool:
    """Whether a file is a program or library of macOS, which has to be signed by itself; a link to one is none."""
    if path.is_symlink():
        return False
    with path.open("rb") as file:
        return file.read(4) in _MACH_O


def bundle_files(bundle: Path) -> list[Path]:
    """Return the files of a bundle in order. Raises PackagingError if the agent's programs are not in it."""
    lacking = [name for name in PROGRAMS if not (bundle / name).is_file()]
    if lacking:
        raise PackagingError(f"{bundle} has no {' and no '.join(lacking)}; make the agent's bundle on macOS.")
    return sorted(path for path in bundle.rglob("*") if path.is_file())


def commands(order: Order, environment: Mapping[str, str], code: Sequence[Path]) -> list[list[str]]:
    """Return what is run once everything is staged; `code` are programs and libraries, inner ones first."""
    signing = [codesign_command(environment, file, SOURCES / "entitlements.plist") for file in code]
    signing.append(codesign_command(environment, order.root / APP, None))
    component = order.work / "agent.pkg"
    pack = ["pkgbuild", "--root", str(order.root), "--scripts", str(SOURCES / "scripts"), "--identifier", IDENTIFIER]
    pack += ["--version", order.version, "--ownership", "recommended", "--install-location", "/", str(component)]
    build = ["productbuild", "--distribution", str(order.work / "distribution.xml"), "--package-path", str(order.work)]
    installer = environment.get("FALLOW_SIGN_INSTALLER", "")
    build += (["--timestamp", "--sign", installer] if installer else []) + [str(order.package)]
    return [command for command in [*signing, pack, build, *notary_commands(environment, order.package)] if command]


def make(order: Order, environment: Mapping[str, str], run: Run) -> Path:
    """Stage everything, make the package and return its file. Raises PackagingError or OSError."""
    bundle_files(order.bundle)
    shutil.rmtree(order.work, ignore_errors=True)
    agent = order.root / AGENT
    shutil.copytree(order.bundle, agent, symlinks=True)
    for place, content in payload(order).items():
        file = order.root / place
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        file.chmod(0o755 if content.startswith(b"#!") else 0o644)
    (order.work / "distribution.xml").write_text(distribution(order.version), encoding="utf-8")
    order.out.mkdir(parents=True, exist_ok=True)
    code = [file for file in bundle_files(agent) if is_code(file)]
    # A program's signature covers nothing beside it; still Apple's tools want what is loaded signed first.
    code.sort(key=lambda file: (file.parent == agent, file))
    for command in commands(order, environment, code):
        run(command)
    return order.package


def dry_run(order: Order, environment: Mapping[str, str]) -> list[str]:
    """Return a line for each file that would be installed and for each command; nothing is changed."""
    files = bundle_files(order.bundle)
    lines = [f"install /{AGENT / file.relative_to(order.bundle).as_posix()}" for file in files]
    lines += [f"install /{place}" for place in payload(order)]
    code = [order.root / AGENT / file.relative_to(order.bundle) for file in files if is_code(file)]
    return [*lines, *("run " + subprocess.list2cmdline(command) for command in commands(order, environment, code))]


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of all arguments."""
    parser = argparse.ArgumentParser(prog="python -m installer.packaging.pkg", description="Make a macOS package.")
    parser.add_argument("bundle", metavar="BUNDLE", type=Path, help="the folder that installer/build.py made")
    parser.add_argument("--version", default=project_version(ROOT), metavar="N", help="(default: the project's)")
    parser.add_argument("--work", type=Path, default=Path("build", "pkg"), metavar="DIR", help="made anew each time")
    parser.add_argument("--out", type=Path, default=Path("dist"), metavar="DIR", help="for the package (default: dist)")
    parser.add_argument("--dry-run", action="store_true", help="only show what would be installed and run")
    return parser


def main(arguments: Sequence[str]) -> int:
    """Make the package; expected failures become one sentence."""
    options = build_parser().parse_args(arguments)
    order = Order(options.bundle, options.version, options.work, options.out)
    try:
        shown = dry_run(order, os.environ) if options.dry_run else [str(make(order, os.environ, run_tool))]
    except (PackagingError, OSError) as error:
        print(f"pkg: {error}", file=sys.stderr)
        return 1
    print("\n".join(shown))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
