"""`python -m tests.bench NAME [--json]`: run one benchmark and print its figures."""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import sys
from collections.abc import Callable
from typing import Any, cast

from installer.children import ended_by_signals

BENCHES = {
    "admin_window": "admin_window",
    "chat_window": "chat_window",
    "drill": "drill",
    "export": "export",
    "fleet": "fleet",
    "idle": "idle",
    "overload": "overload",
    "pipeline": "pipeline",
    "planner": "planner",
    "simulate": "simulate",
    "wan": "wan",
    "yield": "giving_back",
}
"""Names and the modules that measure them."""
ROUNDS = 3
"""Unless the module names a number of its own."""


def main() -> int:
    """Run the named benchmark; with `--json` the last line of stdout is one JSON object."""
    parser = build_parser()
    options = parser.parse_args()
    module = importlib.import_module(f"tests.bench.{BENCHES[options.name]}")
    run = cast(Callable[..., dict[str, Any]], module.run)
    chosen: dict[str, Any] = {"cases": options.cases} if options.cases else {}
    if chosen and "cases" not in inspect.signature(run).parameters:
        parser.error(f"{options.name} has no cases to choose from")
    rounds = getattr(module, "ROUNDS", ROUNDS) if options.rounds is None else options.rounds
    with ended_by_signals():
        result = run(
            rounds=rounds,
            tokens=options.tokens,
            say=lambda line: print(line, file=sys.stderr, flush=True),
            **chosen,
        )
    print(json.dumps(result) if options.json else json.dumps(result, indent=2))
    return 0


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of all arguments."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("name", choices=BENCHES)
    parser.add_argument("--json", action="store_true", help="print one JSON object last")
    parser.add_argument(
        "--rounds", type=int, help="how often each figure is taken (the median counts; 3, drill, idle and overload: 1)"
    )
    parser.add_argument("--tokens", type=int, default=96, help="tokens generated per stream")
    parser.add_argument("--cases", default="", help="drill: only cases with such names, as in 'kill-*/hot/*,yield/*'")
    return parser


if __name__ == "__main__":
    sys.exit(main())
