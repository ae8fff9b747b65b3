"""Windows Installer packages of the agent: `python -m installer.packaging.msi BUNDLE [--scope user] [--dry-run]`.

Needs WiX 5 or newer with its Util extension (`dotnet tool install --global wix`, `wix extension add --global
WixToolset.Util.wixext`) on Windows; a dry run needs nothing, and shows every file and command. How packages are signed
is in `signing.py`; the programs of the bundle are signed before they are packed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from installer.packaging import admx, wix
from installer.packaging.errors import PackagingError
from installer.packaging.freezing import project_version
from installer.packaging.signing import signtool_command
from installer.packaging.tools import ROOT, Run, run_tool

SOURCES = Path(__file__).with_name("windows")
WXS: Mapping[wix.Scope, str] = {"machine": "agent.wxs", "user": "agent-user.wxs"}
PROGRAMS = ("fallow-agent.exe", "fallow-tray.exe")


@dataclass(frozen=True)
class Order:
    """One package to make: of which bundle, for whom, which version, where it goes."""

    bundle: Path
    scope: wix.Scope
    version: str
    work: Path
    out: Path

    @property
    def package(self) -> Path:
        """The file that is made."""
        for_whom = "" if self.scope == "machine" else "-user"
        return self.out / f"fallow-agent-{self.version}-x64{for_whom}.msi"


def written(order: Order, places: Sequence[PurePosixPath]) -> dict[Path, bytes]:
    """Return what has to be written into the work folder before WiX runs: the files, the task, the templates."""
    files = {order.work / "files.wxs": wix.fragment(places, order.scope).encode()}
    if order.scope == "user":
        return files
    # schtasks wants a task as Windows itself exports it.
    task = (SOURCES / "agent-task.xml").read_text("utf-8")
    files[order.work / "agent-task.xml"] = ('<?xml version="1.0" encoding="UTF-16"?>\n' + task).encode("utf-16")
    files[order.work / "fallow.admx"] = admx.template().encode()
    for language in admx.languages():
        text = admx.texts(language, ROOT / "assets" / "translations")
        files[order.work / language / "fallow.adml"] = text.encode()
    return files


def commands(order: Order, environment: Mapping[str, str]) -> list[list[str]]:
    """Return what is run, in order: programs are signed, packed, and the package is signed. Raises PackagingError."""
    programs = signtool_command(environment, [order.bundle / name for name in PROGRAMS])
    build = ["wix", "build", "-arch", "x64", "-ext", "WixToolset.Util.wixext", "-o", str(order.package)]
    for name, value in {
        "Version": wix.product_version(order.version),
        "Bundle": str(order.bundle),
        "Work": str(order.work),
    }.items():
        build += ["-d", f"{name}={value}"]
    build += [str(SOURCES / WXS[order.scope]), str(order.work / "files.wxs")]
    return [command for command in (programs, build, signtool_command(environment, [order.package])) if command]


def make(order: Order, environment: Mapping[str, str], run: Run) -> Path:
    """Make the package and return its file. Raises PackagingError or OSError."""
    places = checked_places(order.bundle)
    todo = commands(order, environment)
    for file, content in written(order, places).items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    order.out.mkdir(parents=True, exist_ok=True)
    for command in todo:
        run(command)
    return order.package


def dry_run(order: Order, environment: Mapping[str, str]) -> list[str]:
    """Return a line for each file that would be installed or written and for each command; nothing is changed."""
    places = checked_places(order.bundle)
    lines = [f"install {file.place} {file.component}" for file in wix.plan(places, order.scope)]
    lines += [f"write {file.relative_to(order.work)} {len(data)}" for file, data in written(order, places).items()]
    return [*lines, *("run " + subprocess.list2cmdline(command) for command in commands(order, environment))]


def checked_places(bundle: Path) -> list[PurePosixPath]:
    """Return the files of a bundle for Windows. Raises PackagingError if its programs are not in it."""
    places = wix.files_of(bundle)
    lacking = [name for name in PROGRAMS if PurePosixPath(name) not in places]
    if lacking:
        raise PackagingError(f"{bundle} has no {' and no '.join(lacking)}; make the agent's bundle on Windows.")
    return places


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of all arguments."""
    parser = argparse.ArgumentParser(prog="python -m installer.packaging.msi", description="Make an MSI of the agent.")
    parser.add_argument("bundle", metavar="BUNDLE", type=Path, help="the folder that installer/build.py made")
    parser.add_argument(
        "--scope", choices=tuple(WXS), default="machine", help="for everybody on the PC (default), or one user"
    )
    parser.add_argument(
        "--version", default=project_version(ROOT), metavar="N", help="such as 1.2.3 (default: the project's)"
    )
    parser.add_argument("--work", type=Path, default=Path("build", "msi"), metavar="DIR", help="for what is generated")
    parser.add_argument("--out", type=Path, default=Path("dist"), metavar="DIR", help="for the package (default: dist)")
    parser.add_argument("--dry-run", action="store_true", help="only show what would be installed, written and run")
    return parser


def main(arguments: Sequence[str]) -> int:
    """Make one package; expected failures become one sentence."""
    options = build_parser().parse_args(arguments)
    order = Order(options.bundle, options.scope, options.version, options.work, options.out)
    try:
        shown = dry_run(order, os.environ) if options.dry_run else [str(make(order, os.environ, run_tool))]
    except (PackagingError, OSError) as error:
        print(f"msi: {error}", file=sys.stderr)
        return 1
    print("\n".join(shown))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
