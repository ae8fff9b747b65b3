"""From a fresh clone to a running demo or a checked tree, with nothing but Python itself.

    python installer/bootstrap.py setup [--extras LIST] [--gui]   make or update .venv
    python installer/bootstrap.py demo  [ARGUMENTS]               setup, then run the demo (--windows: with its windows)
    python installer/bootstrap.py test  [ARGUMENTS]               setup, then format, lint, types, layers and pytest

A stamp inside `.venv` remembers what was installed. It is removed before the first change and written after the last,
so an install that was cut short is repaired by the next run. What setup prints goes to standard error: standard output
belongs to the demo and the checks. Exit codes: 1 setup failed, 2 usage, 130 Ctrl-C, else those of the demo or checks.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # run as a file, modules are looked for beside it only

from installer import desktop, postgresql, prometheus, qt_libraries
from installer.children import run_captured, run_child
from installer.environment import (
    OLDEST_PYTHON,
    Action,
    Environment,
    InstallFailed,
    PythonUnsuitable,
    SetupError,
    Stamp,
    explain_failure,
    fingerprint,
    keep_compiled,
    plan,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from types import FrameType
    from typing import NoReturn

ROOT = Path(__file__).resolve().parent.parent
DEMO_EXTRAS = frozenset({"console", "export", "demo"})
TEST_EXTRAS = DEMO_EXTRAS | {"dev", "gui"}


def say(line: str) -> None:
    """Tell the user what happens, on standard error."""
    print(line, file=sys.stderr, flush=True)


def venv_python(root: Path, *, windows: bool = os.name == "nt") -> Path:
    """Where the interpreter of the tree's virtual environment is."""
    return root / ".venv" / ("Scripts/python.exe" if windows else "bin/python")


def stamp_path(root: Path) -> Path:
    """Where a finished install leaves its stamp."""
    return root / ".venv" / "fallow-setup.json"


def check_python(version: tuple[int, ...] = tuple(sys.version_info[:3])) -> None:
    """Raise `PythonUnsuitable` if this interpreter cannot run Fallow."""
    if version[:2] < OLDEST_PYTHON:
        have, need = (".".join(map(str, numbers)) for numbers in (version[:2], OLDEST_PYTHON))
        raise PythonUnsuitable(f"Fallow needs Python {need} or newer, this is {have}: run this with a newer Python.")


def venv_version(root: Path) -> tuple[int, ...]:
    """Say which Python `.venv` was made with, or the running one's version where there is none."""
    with contextlib.suppress(OSError, ValueError):
        for line in (root / ".venv" / "pyvenv.cfg").read_text(encoding="utf-8").splitlines():
            key, _, value = line.partition("=")
            if key.strip() == "version":
                return tuple(int(number) for number in value.strip().split(".")[:3])
    return tuple(sys.version_info[:3])


def read_stamp(path: Path) -> Stamp | None:
    """Read a stamp; None if there is none or it cannot be understood."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        return Stamp(fingerprint=str(document["fingerprint"]), extras=frozenset(document["extras"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write_stamp(path: Path, stamp: Stamp) -> None:
    """Write a stamp so that it is there whole or not at all."""
    partial = path.with_suffix(".partial")
    content = {"fingerprint": stamp.fingerprint, "extras": sorted(stamp.extras)}
    partial.write_text(json.dumps(content), encoding="utf-8")
    partial.replace(path)


def look(root: Path) -> Environment:
    """Read the state of `.venv`. Starts its pip only when there is no stamp to believe."""
    python = venv_python(root)
    # A link to a Python that was uninstalled does not exist either.
    if not python.exists() or venv_version(root)[:2] < OLDEST_PYTHON:
        return Environment(usable=False, stamp=None)
    stamp = read_stamp(stamp_path(root))
    if stamp is not None:
        return Environment(usable=True, stamp=stamp)
    try:
        probe = subprocess.run([python, "-m", "pip", "--version"], capture_output=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return Environment(usable=False, stamp=None)
    return Environment(usable=probe.returncode == 0, stamp=None)


def set_up(root: Path, wanted: Iterable[str]) -> None:
    """Bring `.venv` to what pyproject.toml and `wanted` ask for; raises `SetupError`."""
    check_python()
    extras = frozenset(wanted)
    project_file = (root / "pyproject.toml").read_text(encoding="utf-8")

    def current() -> str:
        return fingerprint(project_file, str(root), ".".join(map(str, venv_version(root))))

    environment = look(root)
    actions = plan(environment, extras, project_file, current())
    if "gui" in extras and sys.platform == "linux":
        qt_libraries.ensure(root)
    if not actions:
        return
    stamp_path(root).unlink(missing_ok=True)
    for action in actions:
        carry_out(action, root)
    before = environment.stamp.extras if environment.stamp else frozenset()
    write_stamp(stamp_path(root), Stamp(current(), extras | before))


def carry_out(action: Action, root: Path) -> None:
    """Run one action; raises `SetupError` with the cause if it fails."""
    say(f"{action.title} ...")
    if action.makes_venv:
        make_venv(root, action)
        return
    quiet = () if sys.stderr.isatty() else ("--quiet",)
    code, output = run_captured([str(venv_python(root)), *action.arguments, *quiet], root)
    if code:
        raise InstallFailed(explain_failure(action.title, output))


def make_venv(root: Path, action: Action) -> None:
    """Make `.venv`, or leave nothing of it behind."""
    folder = root / ".venv"
    if Path(sys.prefix).resolve() == folder.resolve():
        raise PythonUnsuitable("The Python running this is in the damaged .venv: run this with the system's Python.")
    output = ""
    made = False
    try:
        code, output = run_captured([sys.executable, *action.arguments, str(folder)], root)
        made = code == 0
    finally:
        if not made:
            shutil.rmtree(folder, ignore_errors=True)
    if made:
        return
    if "ensurepip" in output or "No module named venv" in output:
        package = f"python{sys.version_info[0]}.{sys.version_info[1]}-venv"
        raise PythonUnsuitable(
            f"This Python cannot make virtual environments: run 'sudo apt-get install -y {package}' "
            "or install Python with its venv module, then run this again."
        )
    raise InstallFailed(explain_failure(action.title, output))


def build_setup_parser() -> argparse.ArgumentParser:
    """Return the parser of the arguments of `setup`."""
    parser = argparse.ArgumentParser(prog="bootstrap.py setup", description="Make or update .venv.", allow_abbrev=False)
    parser.add_argument(
        "--extras",
        metavar="LIST",
        default=",".join(sorted(DEMO_EXTRAS)),
        help="any of console, demo, dev, export, gui with commas between; '' for an agent alone (default: %(default)s)",
    )
    parser.add_argument("--gui", action="store_true", help="what the windows need, too")
    return parser


def setup_extras(arguments: Sequence[str]) -> frozenset[str]:
    """Read the arguments of `setup`; argparse prints usage and exits 2 if they make no sense."""
    options = build_setup_parser().parse_args(arguments)
    names = {name.strip() for name in options.extras.split(",") if name.strip()}
    return frozenset(names | ({"gui"} if options.gui else set()))


def run(arguments: Sequence[str], root: Path = ROOT) -> int:
    """Carry out one command line; gives the exit code, raises `SetupError`."""
    command, rest = (arguments[0], arguments[1:]) if arguments else ("", [])
    modules = {"demo": ("installer.demo", DEMO_EXTRAS), "test": ("installer.check", TEST_EXTRAS)}
    if command == "setup":
        set_up(root, setup_extras(rest))
        say("The environment in .venv is ready.")
        return 0
    if command in modules:
        module, extras = modules[command]
        set_up(root, extras | ({"gui"} if "--windows" in rest else set()))
        if command == "test":
            for lack in filter(None, (one.ensure(root) for one in (postgresql, prometheus, desktop))):
                say(lack)
        environment = keep_compiled(os.environ, str(root / ".venv" / "compiled"))
        return run_child([str(venv_python(root)), "-m", module, *rest], root, environment)
    asked = command in {"-h", "--help"}
    print((__doc__ or "").split("\n\nA stamp")[0], file=sys.stdout if asked else sys.stderr)
    return 0 if asked else 2


def stop_on_termination(_signal: int, _frame: FrameType | None) -> NoReturn:
    """Leave on SIGTERM as on Ctrl-C, so that children are ended too."""
    raise SystemExit(128 + signal.SIGTERM)


def main(arguments: Sequence[str]) -> int:
    """Run and turn every expected failure into one sentence and an exit code."""
    try:
        return run(arguments)
    except SetupError as error:
        say(f"error: {error}")
        return 1
    except OSError as error:
        say(f"error: {error}: check that the folder can be written and has room, and run this again.")
        return 1
    except KeyboardInterrupt:
        say("Stopped.")
        return 130


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, stop_on_termination)
    sys.exit(main(sys.argv[1:]))
