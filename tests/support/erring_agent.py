"""An agent whose stages make a mistake when they are told to: `python -m tests.support.erring_agent FOLDER`.

It is `fallow-agent run` with one computing thread; only its stages run `tests.support.erring_stage`.
"""

from __future__ import annotations

import sys

from agent.cli import main
from agent.stage import process

ERRING_STAGE = "tests.support.erring_stage"


def run() -> int:
    """Run until told to stop."""
    process.WORKER = ERRING_STAGE
    return main(["run", "--data", sys.argv[1], "--volunteer", "always", "--threads", "1"])


if __name__ == "__main__":
    sys.exit(run())
