"""The agent as an AppImage: one file that runs where no package can be installed.

An AppImage is a small program, the runtime, with a squashed folder behind it. The folder is made and checked here; the
runtime comes from the AppImage project and is named with --runtime, because no package of Debian or PyPI brings it.
"""

from __future__ import annotations

import shutil
import stat
import subprocess
from pathlib import Path

from installer.packaging.debbuild import programs
from installer.packaging.errors import BuildFailed
from installer.packaging.freezing import Say

_ELF, _TYPE_2 = b"\x7fELF", b"AI\x02"
_MAGIC_AT = 8
MAIN = "fallow-tray"
_LINUX = Path(__file__).resolve().parent / "linux" / "agent"

# What is named after the link it was started by decides; without one it is the tray, with a command the agent.
APP_RUN = """#!/bin/sh
# Runs the program named first, or that the link to this file is named after; without either the icon in the tray.
here=$(dirname "$(readlink -f "$0")")
name=$(basename "${ARGV0:-$0}")
case "$1" in
fallow-agent | fallow-tray)
    name=$1
    shift
    ;;
esac
case "$name" in
fallow-agent | fallow-tray) exec "$here/usr/lib/fallow-agent/$name" "$@" ;;
esac
exec "$here/usr/lib/fallow-agent/fallow-tray" "$@"
"""


def lay_out(bundle: Path, root: Path, folder: Path) -> Path:
    """Make the AppDir of the agent in `folder` out of its bundle, and return it. Raises BuildFailed or OSError."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(bundle, folder / "usr/lib/fallow-agent", symlinks=True)
    launcher = (_LINUX / "fallow-tray.desktop").read_text("utf-8")
    for place in (folder / f"{MAIN}.desktop", folder / "usr/share/applications" / f"{MAIN}.desktop"):
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(launcher, "utf-8")
    icon = root / "assets/icons/fallow.svg"
    scalable = folder / f"usr/share/icons/hicolor/scalable/apps/{MAIN}.svg"
    scalable.parent.mkdir(parents=True)
    for place in (folder / f"{MAIN}.svg", folder / ".DirIcon", scalable):
        shutil.copyfile(icon, place)
    described = folder / "usr/share/metainfo" / "io.fallow.tray.metainfo.xml"
    described.parent.mkdir(parents=True)
    shutil.copyfile(_LINUX / "metainfo.xml", described)
    (folder / "AppRun").write_text(APP_RUN, "utf-8")
    (folder / "AppRun").chmod(0o755)
    check(folder)
    return folder


def check(folder: Path) -> None:
    """Raise BuildFailed for an AppDir that would not start: its entry, launcher, icon and programs have to fit."""
    launchers = list(folder.glob("*.desktop"))
    if len(launchers) != 1:
        raise BuildFailed(f"An AppDir has one launcher at its top, {folder} has {len(launchers)}; make it anew.")
    said = dict(line.split("=", 1) for line in launchers[0].read_text("utf-8").splitlines() if "=" in line)
    if not (folder / f"{said.get('Icon')}.svg").is_file():
        raise BuildFailed(f"The launcher's icon {said.get('Icon')!r} is not at the top of {folder}; make it anew.")
    names = [path.name for path in programs(folder / "usr/lib/fallow-agent")]
    if said.get("Exec", "").split(" ")[0] not in names:
        raise BuildFailed(f"The launcher starts {said.get('Exec')!r}, and the programs are {', '.join(names)}.")
    if not (folder / "AppRun").stat().st_mode & stat.S_IXUSR:
        raise BuildFailed(f"{folder / 'AppRun'} cannot be run; make the AppDir anew.")


def check_runtime(runtime: Path) -> bytes:
    """Read a type-2 runtime. Raises BuildFailed for anything else, OSError."""
    content = runtime.read_bytes()
    if not content.startswith(_ELF) or content[_MAGIC_AT : _MAGIC_AT + 3] != _TYPE_2:
        raise BuildFailed(f"{runtime} is no AppImage runtime of type 2; take it from the AppImage project's releases.")
    return content


def pack(folder: Path, runtime: Path, result: Path, say: Say) -> Path:
    """Squash an AppDir behind a runtime into one program. Raises BuildFailed or OSError."""
    head = check_runtime(runtime)
    if shutil.which("mksquashfs") is None:
        raise BuildFailed("mksquashfs is not installed; run: apt-get install squashfs-tools")
    squashed = result.with_suffix(".squashfs")
    say(f"{result.name}: squashing")
    command = [
        "mksquashfs",
        str(folder),
        str(squashed),
        "-root-owned",
        "-noappend",
        "-comp",
        "zstd",
        "-quiet",
        "-no-progress",
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise BuildFailed(f"mksquashfs failed: {(done.stderr.strip().splitlines() or ['it said nothing'])[-1]}")
        with result.open("wb") as file, squashed.open("rb") as body:
            file.write(head)
            shutil.copyfileobj(body, file)
    finally:
        squashed.unlink(missing_ok=True)
    result.chmod(0o755)
    return result
