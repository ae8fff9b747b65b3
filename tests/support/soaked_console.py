"""The console of a soak: `python -m tests.support.soaked_console serve ...`.

It is `fallow-console` that says what it holds, speaks TLS to people as well, and keeps finished answers for seconds
instead of minutes, so that their blocks are back while somebody looks.
"""

from __future__ import annotations

import sys

from console.cli import main
from console.pipeline import coordinator
from tests.support.telling import held_tasks, own_path, tell_when_asked

KEPT_S = 4.0


def run() -> int:
    """Run the console's command line."""
    coordinator.KEPT_S = KEPT_S
    tell_when_asked(own_path(), held_tasks)
    return main([*sys.argv[1:], "--host", "0.0.0.0"])


if __name__ == "__main__":
    sys.exit(run())
