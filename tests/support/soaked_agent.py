"""The agent of a soak: `python -m tests.support.soaked_agent FOLDER`.

It is `fallow-agent run` with one computing thread; it and its stages say what they hold.
"""

from __future__ import annotations

import sys

from agent.cli import main
from agent.stage import process
from tests.support.telling import held_tasks, own_path, tell_when_asked


def run() -> int:
    """Run until told to stop."""
    process.WORKER = "tests.support.soaked_stage"
    tell_when_asked(own_path(), held_tasks)
    return main(["run", "--data", sys.argv[1], "--volunteer", "always", "--threads", "1"])


if __name__ == "__main__":
    sys.exit(run())
