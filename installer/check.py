"""The one check command: format, lint, types, layers, tests, in this order, stopping at the first that fails.

Run by `python installer/bootstrap.py test` with the environment's Python; arguments go to pytest (`--slow`, `-k NAME`).
Test files are shared out to one process more than there are cores, five at most; `-n 0` runs them in one, as a debugger
wants it. pytest comes last and nothing is printed after it, so its closing line is the last line.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from installer.bootstrap import ROOT
from installer.children import run_child

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MOST_CORES = 4
"""Each process holds torch and models; the tests that start whole fleets gain nothing from more."""


def steps(pytest_arguments: Sequence[str]) -> list[tuple[str, list[str]]]:
    """List the checks by name, each with its command."""
    python = sys.executable
    beside = Path(python).parent
    lint_imports = beside / ("lint-imports.exe" if os.name == "nt" else "lint-imports")
    # By file: what the tests of a module share is made once. In the order of the collection, in which the long ones
    # come first; files of few tests last, as xdist would have it, would leave one process with the longest of all.
    sharing = ["--dist", "loadfile", "--no-loadscope-reorder"]
    # One more than cores: the long soak and the tests of what happens after a while wait for most of their time.
    # A process that dies ends the run: one put in its place was seen to wait for files of tests that never came.
    processes = ["-n", str(min(os.cpu_count() or 1, MOST_CORES) + 1), "--max-worker-restart", "0", *sharing]
    return [
        ("format", [python, "-m", "ruff", "format", "--check", "."]),
        ("lint", [python, "-m", "ruff", "check", "."]),
        ("types", [python, "-m", "mypy"]),
        ("layers", [str(lint_imports)]),
        ("tests", [python, "-m", "pytest", *processes, *pytest_arguments]),
    ]


def check(
    todo: Sequence[tuple[str, list[str]]],
    run: Callable[[Sequence[str], Path], int] = run_child,
    clock: Callable[[], float] = time.monotonic,
) -> int:
    """Run the checks in order; returns the exit code of the first that fails, else 0."""
    for name, command in todo:
        print(f"--- {name}", flush=True)
        began_s = clock()
        code = run(command, ROOT)
        if name != todo[-1][0]:
            print(
                f"--- {name}: {'ok' if code == 0 else f'failed with exit code {code}'} in {clock() - began_s:.1f} s",
                flush=True,
            )
        if code:
            return code
    return 0


def main() -> int:
    """Check the tree; arguments of the command line go to pytest."""
    try:
        return check(steps(sys.argv[1:]))
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
