"""The subcommand `fallow-console bench`: a load test of a deployed model, over the API that everybody uses.

Exit codes: 0 all requests were answered, 1 some were not, 130 interrupted (what was measured is shown and kept).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from console.access import Access, access_of
from console.bench import mix as mixes
from console.bench.comparing import Change, changes
from console.bench.load import Level, Load
from console.bench.records import LAST, Run, Runs, name_for
from console.bench.running import Measured, OnProgress, measure
from console.bench.service import context_of, count_tokens, own_version, served_as
from console.bench.shown import asked_for, changes_table, run_tables, runs_table
from console.cli_tools import Commands, command, show
from console.client import AdminClient
from console.errors import ClientError, UsageWrong
from shard_export.library.counts import counted

LIST, SHOW = "list", "show"
MOST_USERS, MOST_SECONDS, MOST_REQUESTS, MOST_TOKENS = 1000, 86_400.0, 1_000_000, 1 << 20
FAILED, INTERRUPTED = 1, 130


class BenchAnswer(msgspec.Struct, frozen=True):
    """What `--json` prints: the run, and what changed since an earlier one."""

    run: Run
    against: str = ""
    changes: list[Change] = []


def add_bench(commands: Commands) -> None:
    """Add the subcommand."""
    bench = command(commands, "bench", "measure how fast a deployed model answers, alone and under load", _bench)
    bench.add_argument("model", metavar=f"MODEL|{LIST}|{SHOW}", help=f"a served model, {LIST}, or {SHOW} NAME")
    bench.add_argument("run", nargs="?", default="", metavar="NAME", help=f"only with {SHOW}: a run that was kept")
    load = bench.add_argument_group("the load")
    load.add_argument(
        "--users", type=_count(1, MOST_USERS), default=8, metavar="N", help="who ask at once (default: 8)"
    )
    load.add_argument("--no-baseline", action="store_true", help="do not measure one user alone before")
    how_long = load.add_mutually_exclusive_group()
    how_long.add_argument("--duration", type=_seconds, default=30.0, metavar="S", help="for so long each (default: 30)")
    how_long.add_argument(
        "--requests",
        type=_count(1, MOST_REQUESTS),
        default=0,
        metavar="N",
        help="so many requests of each user instead",
    )
    load.add_argument("--warm-up", type=_count(0, 1000), default=1, metavar="N", help="requests of each user before")
    what = load.add_mutually_exclusive_group()
    what.add_argument("--mix", default="", metavar="KINDS", help="short=2,long=1,edit=1 (the default), or some of it")
    what.add_argument("--prompts", type=Path, metavar="FILE", help="your own prompts, one JSON text or object a line")
    load.add_argument(
        "--max-tokens", type=_count(1, MOST_TOKENS), default=128, metavar="N", help="of an answer (default: 128)"
    )
    load.add_argument("--natural", action="store_true", help="let answers end by themselves before that")
    kept = bench.add_argument_group("what is kept")
    kept.add_argument("--name", default="", metavar="NAME", help="what to call it (default: model and time)")
    kept.add_argument("--no-save", action="store_true", help="keep nothing")
    kept.add_argument("--compare", default="", metavar=f"NAME|{LAST}", help="show what changed since that run")
    asks = bench.add_argument_group("who asks (default: the admin of the service on --data)")
    asks.add_argument("--key-file", type=Path, metavar="FILE", help="a file with an API key")
    asks.add_argument("--url", default="", metavar="URL", help="another service; needs --key-file")
    asks.add_argument("--authority", type=Path, metavar="FILE", help="authorities.pem of a service at https://")


def _count(least: int, most: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        value = int(text)
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"{text} is not between {least} and {most}")
        return value

    return number


def _seconds(text: str) -> float:
    value = float(text)
    if not 0.1 <= value <= MOST_SECONDS:
        raise argparse.ArgumentTypeError(f"{text} is not between 0.1 and {MOST_SECONDS:g}")
    return value


def _bench(options: argparse.Namespace) -> int:
    runs = Runs(options.data)
    if options.model == LIST:
        kept = runs.all()
        return show(options, kept, runs_table(kept))
    if options.model == SHOW:
        return _present(options, runs, runs.find(options.run or LAST))
    if options.run:
        raise UsageWrong(f"{options.run} is one word too many; quote a model's id that has spaces.")
    # Before anything is asked: nobody wants to hear after an hour that it cannot be compared.
    against = runs.find(options.compare, options.model) if options.compare else None
    name = options.name or name_for(options.model, time.strftime("%Y%m%d-%H%M%S"))
    if not options.no_save:
        runs.check_free(name)
    run = _run(options, name)
    if not options.no_save:
        runs.keep(run)
    _present(options, runs, run, against)
    if run.interrupted:
        return INTERRUPTED
    return FAILED if any(level.failed or not level.answered for level in run.levels) else 0


def _present(options: argparse.Namespace, runs: Runs, run: Run, against: Run | None = None) -> int:
    if against is None and options.compare:
        against = runs.find(options.compare, run.load.model)
    if against is None:
        return show(options, BenchAnswer(run), *run_tables(run), f"Its name is {run.name}.")
    found = changes(against, run)
    return show(options, BenchAnswer(run, against.name, found), *run_tables(run), *changes_table(against, run, found))


def _run(options: argparse.Namespace, name: str) -> Run:
    access = _access(options)
    with AdminClient(access.url, access.token, authority=access.authority) as client:
        mix = _mix(options, client)
        served = served_as(client, options.model)
    load = Load(
        model=options.model,
        users=[options.users] if options.no_baseline or options.users == 1 else [1, options.users],
        duration_s=options.duration,
        requests=options.requests,
        warm_up=options.warm_up,
        mix=mix.said,
        max_tokens=options.max_tokens,
        natural=options.natural,
    )
    made_s = time.time()
    run = Run(name=name, made_s=made_s, version=own_version(), load=load, levels=[], served=served)
    with _progress(run) as on_progress:
        measured: Measured = asyncio.run(measure(access, load, mix, on_progress))
    if not measured.levels:
        raise KeyboardInterrupt
    return msgspec.structs.replace(run, levels=measured.levels, interrupted=measured.interrupted)


def _access(options: argparse.Namespace) -> Access:
    if options.url and options.key_file is None:
        raise UsageWrong("Another service wants a key: write it into a file, and name that with --key-file.")
    access = Access(options.url, "", options.authority) if options.url else access_of(options.data)
    if options.key_file is None:
        return access
    try:
        key = options.key_file.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError):
        raise ClientError(f"The key in {options.key_file} cannot be read; check the file's name and rights.") from None
    return Access(access.url, key, access.authority)


def _mix(options: argparse.Namespace, client: AdminClient) -> mixes.Mix:
    context_tokens = context_of(client, options.model)
    if options.prompts is None:
        return mixes.built_in(
            mixes.parse_shares(options.mix) if options.mix else mixes.DEFAULT_SHARES,
            context_tokens=context_tokens,
            answer_tokens=options.max_tokens,
            count=lambda text: count_tokens(client, options.model, text),
            mark=secrets.token_hex(2),
        )
    try:
        with options.prompts.open("rb") as file:
            data = file.read(mixes.MOST_FILE_BYTES + 1)
    except OSError as error:
        raise ClientError(f"{options.prompts} cannot be read ({error.strerror}); check its name.") from None
    if len(data) > mixes.MOST_FILE_BYTES:
        raise UsageWrong(f"{options.prompts} is larger than {mixes.MOST_FILE_BYTES >> 20} MB; leave some prompts out.")
    return mixes.listed(data)


@contextlib.contextmanager
def _progress(run: Run) -> Iterator[OnProgress]:
    """Show on standard error how far it is: on a terminal a bar with the time that is left, elsewhere lines."""
    console = Console(stderr=True)
    console.print(f"{run.load.model}: {asked_for(run)}; Ctrl-C ends it early.", markup=False, highlight=False)
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TimeRemainingColumn(elapsed_when_finished=True),
    )
    said: set[tuple[int, bool]] = set()
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as progress:
        bar = progress.add_task("", total=1.0)

        def on_progress(level: Level, share: float) -> None:
            what = "warming up" if level.warming else f"{counted(len(level.asked), 'request')} begun"
            progress.update(bar, completed=share, description=f"{counted(level.users, 'user')}, {what}")
            if not console.is_terminal and (level.users, level.warming) not in said:
                said.add((level.users, level.warming))
                line = f"{counted(level.users, 'user')}: {'warming up' if level.warming else 'measuring'}"
                console.print(line, markup=False, highlight=False)

        yield on_progress
