"""The script that every program of a bundle starts with: it runs the module the program is named after.

`PROGRAM -m MODULE` runs another module of the same bundle, as Python would: so code that starts a process of its own
with `sys.executable -m MODULE` is right both from source and frozen. Only modules that are started so are let in.
"""

from __future__ import annotations

import json
import os
import re
import runpy
import sys
from pathlib import Path

EXIT_USAGE = 2
MANAGED = "managed"
"""What lies beside a program that a package brought, as `agent.update.layout` calls it; importing that needs more than
a plain Python."""


def main() -> None:
    """Find the module and run it; `programs.json` was written when the bundle was made."""
    known = json.loads((Path(sys._MEIPASS) / "programs.json").read_text("utf-8"))  # type: ignore[attr-defined]  # noqa: SLF001 - PyInstaller's documented name
    # A link to a program is that other program; sys.executable is what the link leads to.
    names = [Path(path).name.removesuffix(".exe") for path in (sys.argv[0], sys.executable)]
    name = next((name for name in names if name in known["programs"]), names[0])
    arguments = sys.argv[1:]
    if arguments[:1] == ["-m"]:
        module = arguments[1] if len(arguments) > 1 else ""
        if module not in known["children"]:
            sys.exit(_refuse(f"{name}: {module or 'nothing'} cannot be run with -m."))
        arguments = arguments[2:]
    else:
        module = known["programs"].get(name, "")
        if not module:
            sys.exit(_refuse(f"{name}: this program was renamed; use one of {', '.join(known['programs'])}."))
    hold_modules()
    restore_environment()
    sys.argv = [name, *arguments]
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except ImportError as error:
        if not (sentence := why_not_loaded(str(error))):
            raise
        sys.exit(_refuse(f"{name}: {sentence}"))


def why_not_loaded(said: str) -> str:
    """Return what to do about a library of the system that a loader did not find; empty for any other failure.

    A server does without what only windows need: our packages recommend it, and do not depend on it.
    """
    found = re.match(r"(lib[^:/]+): cannot open shared object file: No such file", said)
    if found is None:
        return ""
    home = Path(sys.executable).resolve().parent
    if (home / MANAGED).exists():
        return f"{found[1]} is missing here; install what the package recommends: dpkg -s {home.name} lists it."
    return f"{found[1]} is missing here; install the package of this system that brings it."


def hold_modules() -> None:
    """Go on reading modules from the file this program began with, when an upgrade puts another in its place.

    PyInstaller opens it by name for each module. A window stays open while its package is upgraded, and imports some of
    its modules only when somebody needs them.
    """
    importers = sys.modules.get("pyimod02_importers")
    if importers is None or not Path("/proc/self/fd").is_dir():
        return
    archive = importers.pyz_archive
    held = os.open(archive._filename, os.O_RDONLY)  # noqa: SLF001 - there is no documented way
    archive._filename = f"/proc/self/fd/{held}"  # noqa: SLF001


def restore_environment() -> None:
    """Undo what the start code did to the environment: it was for this process, and others would load our libraries.

    Processes of our own start as if by themselves, and get it anew.
    """
    before = os.environ.pop("LD_LIBRARY_PATH_ORIG", "")
    os.environ.pop("LD_LIBRARY_PATH", None)
    if before:
        os.environ["LD_LIBRARY_PATH"] = before
    os.environ["PYINSTALLER_RESET_ENVIRONMENT"] = "1"


def _refuse(sentence: str) -> int:
    if sys.stderr is not None:  # a program with windows has none on Windows
        sys.stderr.write(sentence + os.linesep)
    return EXIT_USAGE


if __name__ == "__main__":
    main()
