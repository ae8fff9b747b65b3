"""`fallow-agent probes`: what each probe sees of this PC, live on a terminal, once elsewhere. Nothing of it is sent."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from pathlib import Path

import msgspec
from rich.console import Console
from rich.live import Live
from rich.table import Table

from agent.volunteer.probes.board import ProbeBoard, Row, value_text
from agent.volunteer.probes.thispc import open_board

FIRST_LOOK_S = 1.2
"""Until every probe has read twice, which rates need, and a hanging one is found out."""
BETWEEN_LOOKS_S = 0.5


def show_probes(options: argparse.Namespace) -> int:
    """Print what the probes see; `--json`, or output that is no terminal: once."""
    inputs: list[tuple[float, str]] = []
    folder: Path = options.data
    board = open_board(folder, on_input=lambda source: inputs.append((time.monotonic(), source)))
    board.start()
    try:
        time.sleep(FIRST_LOOK_S / 2)
        board.refresh()
        time.sleep(FIRST_LOOK_S / 2)
        if options.json:
            print(json.dumps(_as_json(board), ensure_ascii=False))
        elif not sys.stdout.isatty():
            for line in as_lines(board.rows()):
                print(line)
        else:
            with contextlib.suppress(KeyboardInterrupt):
                _show_live(board, inputs)
    finally:
        board.close()
    return 0


def as_lines(rows: list[Row]) -> list[str]:
    """Give one line per fact and probe."""
    return [f"{row.fact:18} {row.probe:18} {value_text(row)}" for row in rows]


def _as_json(board: ProbeBoard) -> dict[str, object]:
    rows = [
        {
            "fact": row.fact,
            "probe": row.probe,
            "value": msgspec.to_builtins(row.value),
            "problem": row.problem,
            "age_s": round(row.age_s, 3),
        }
        for row in board.rows()
    ]
    facts = board.snapshot()
    merged = {name: msgspec.to_builtins(getattr(facts, name)) for name in facts.__struct_fields__}
    return {"facts": merged, "probes": rows}


def _show_live(board: ProbeBoard, inputs: list[tuple[float, str]]) -> None:
    with Live(console=Console(), auto_refresh=False) as live:
        while True:
            table = Table("fact", "probe", "value", "age", box=None)
            for row in board.rows():
                table.add_row(row.fact, row.probe, value_text(row), f"{row.age_s:.1f} s")
            table.add_section()
            table.add_row("first sign", *_last_input(inputs), "")
            live.update(table, refresh=True)
            time.sleep(BETWEEN_LOOKS_S)


def _last_input(inputs: list[tuple[float, str]]) -> tuple[str, str]:
    """Say which probe told of input last: when a PC never rests, this is the one to look at."""
    if not inputs:
        return "", "none since this began; Ctrl-C ends it"
    at_s, source = inputs[-1]
    return source, f"{time.monotonic() - at_s:.0f} s ago"
