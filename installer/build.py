"""Make what people install, on the operating system this runs on.

    python installer/build.py [agent|console|chat ...]           one folder with programs for each, into dist/
    python installer/build.py --as deb [agent|console|chat ...]  Debian packages of them
    python installer/build.py --as appimage --runtime FILE       the agent as one file; without a runtime, its AppDir

Nothing but Python 3.11 or newer has to be there before; a bundle is made in a venv of its own below build/, for the
other forms, too. Debian packages need a Debian with binutils (apt-get install binutils).
"""

from __future__ import annotations

import argparse
import platform
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
if sys.version_info < (3, 11):  # noqa: UP036 - whoever runs this may have an older one
    sys.exit("error: Fallow needs Python 3.11 or newer: run this with a newer Python.")

from installer.bootstrap import stop_on_termination  # noqa: E402 - found on the path just set
from installer.packaging import appimage, debbuild, freezing, licences  # noqa: E402
from installer.packaging.debian import PACKAGES  # noqa: E402
from installer.packaging.errors import PackagingError  # noqa: E402
from installer.packaging.roles import AGENT, ROLES, Role  # noqa: E402


def say(line: str) -> None:
    """Tell about progress."""
    print(line, file=sys.stderr, flush=True)


def bundle(role: Role) -> Path:
    """Make one bundle, start its programs, and return its folder."""
    made = freezing.freeze(role, ROOT, say)
    freezing.check_starts(made, role)
    return made


def bundle_there(role: Role) -> Path:
    """Return the bundle of a role, made now if it is not there whole."""
    there = freezing.places_of(ROOT, role).bundle
    return there if (there / licences.SBOM).exists() else bundle(role)


def deb(role: Role, options: argparse.Namespace) -> Path:
    """Make the Debian package of a role, or find the one of this version if that will do; return its file."""
    package = PACKAGES[role.name]
    ready = debbuild.file_of(package, ROOT, options.revision)
    if options.if_missing and ready.exists():
        return ready
    return debbuild.build_package(package, bundle_there(role), ROOT, say, options.revision)


def image(options: argparse.Namespace) -> Path:
    """Make the agent's AppDir, and with a runtime its AppImage, and return it."""
    if options.runtime is not None:
        appimage.check_runtime(options.runtime)
    made = bundle_there(AGENT)
    folder = appimage.lay_out(made, ROOT, made.with_suffix(".AppDir"))
    if options.runtime is None:
        say(f"{folder.name}: made and checked; name a runtime with --runtime to make one file of it")
        return folder
    name = f"fallow-agent-{freezing.project_version(ROOT)}-{platform.machine()}.AppImage"
    return appimage.pack(folder, options.runtime, ROOT / "dist" / name, say)


def make(role: Role, options: argparse.Namespace) -> Path:
    """Make one role in the wanted form."""
    forms: dict[str, Callable[[], Path]] = {
        "bundle": lambda: bundle(role),
        "deb": lambda: deb(role, options),
        "appimage": lambda: image(options),
    }
    return forms[options.form]()


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(
        prog="build.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("roles", nargs="*", type=_role, metavar="ROLE", help=f"{', '.join(ROLES)} (default: all)")
    made.add_argument(
        "--as", dest="form", choices=("bundle", "deb", "appimage"), default="bundle", help="what to make of it"
    )
    made.add_argument("--revision", type=int, default=1, metavar="N", help="of a Debian package (default: 1)")
    made.add_argument("--if-missing", action="store_true", help="take a Debian package of this version that is there")
    made.add_argument("--runtime", type=Path, metavar="FILE", help="of type 2, from the AppImage project")
    return made


def _role(name: str) -> str:
    if name not in ROLES:
        raise argparse.ArgumentTypeError(f"there is no {name!r}; choose from {', '.join(ROLES)}")
    return name


def main(arguments: Sequence[str]) -> int:
    """Make everything asked for and print its paths; expected failures become one sentence."""
    made = build_parser()
    options = made.parse_args(arguments)
    names = options.roles or list(ROLES)
    if options.form == "appimage":
        if options.roles not in ([], [AGENT.name]):
            made.error("only the agent is made as an AppImage")
        names = [AGENT.name]
    try:
        for name in names:
            print(make(ROLES[name], options), flush=True)
    except PackagingError as error:
        say(f"error: {error}")
        return 1
    except OSError as error:
        say(f"error: {error}: check that the folder can be written and has room, and run this again.")
        return 1
    except KeyboardInterrupt:
        say("Stopped.")
        return 130
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, stop_on_termination)
    sys.exit(main(sys.argv[1:]))
