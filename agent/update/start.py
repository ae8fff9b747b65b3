"""What lies beside the versions where there are no links (Windows): starts the one that `current.txt` names.

It never changes with an update, so it knows nothing but the layout and imports Python's own library alone: made into
one small executable with the program's name (`pyinstaller --onefile`), it is what a desktop or a logon starts.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

POINTER = "current.txt"
MAX_POINTER_BYTES = 100
EXIT_BROKEN = 15
_VERSION = re.compile(r"\d{1,6}\.\d{1,6}\.\d{1,6}", re.ASCII)


def main(program: Path | None = None, arguments: Sequence[str] | None = None) -> int:
    """Run the current version with this program's name and arguments; returns its exit code."""
    program = program or Path(sys.executable if getattr(sys, "frozen", False) else sys.argv[0]).absolute()
    current = find(program.parent, program.name)
    if current is None:
        if sys.stderr is not None:  # a program without a console has none on Windows
            sys.stderr.write(f"{program.name}: there is no version in {program.parent}; install the program again.\n")
        return EXIT_BROKEN
    return subprocess.call([current, *(sys.argv[1:] if arguments is None else arguments)])


def find(root: Path, name: str) -> Path | None:
    """Return the current version's executable; the newest that is whole where the pointer names none."""
    try:
        with (root / POINTER).open("rb") as file:
            named = file.read(MAX_POINTER_BYTES).decode("ascii", "replace").strip()
    except OSError:
        named = ""
    here = [path.name for path in (root / "versions").glob("*") if _VERSION.fullmatch(path.name)]
    here.sort(key=lambda version: [int(part) for part in version.split(".")], reverse=True)
    wanted = [named] if _VERSION.fullmatch(named) else []
    programs = (root / "versions" / version / name for version in (*wanted, *here))
    return next((program for program in programs if program.is_file()), None)


if __name__ == "__main__":
    sys.exit(main())
