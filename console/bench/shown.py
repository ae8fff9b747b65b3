"""How load tests are shown: rich tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.table import Table

from console.bench.comparing import Change, differences
from console.bench.figures import Figures, Spread
from console.bench.records import Run
from console.tables import moment, table
from shard_export.library.counts import counted

_WAITS = ("first token p50 ms", "p95 ms", "between p50 ms", "p95 ms")


def run_tables(run: Run) -> Iterator[Table | str]:
    """Yield a run: how it was asked and served, its figures by users, by kinds of prompts, by the server's timings."""
    yield f"{run.load.model}: {asked_for(run)}"
    yield from (f"Served as {line}" for line in run.served)
    yield levels_table(run.levels)
    kinds = [
        (
            level.users,
            kind,
            one.answered,
            _mean(one.prompt_tokens, one.answered),
            *_waits(one.first_token_ms, one.inter_token_ms),
        )
        for level in run.levels
        for kind, one in level.kinds.items()
    ]
    if len({kind for _, kind, *_ in kinds}) > 1:
        yield table(("users", "prompts", "answers", "tokens each", *_WAITS), kinds)
    timings = [
        (level.users, name, _number(one.p50), _number(one.p95))
        for level in run.levels
        for name, one in level.timings_ms.items()
        if one.p95  # what took no time in nearly all answers needs no row
    ]
    if timings:
        yield table(("users", "the server says", "p50 ms", "p95 ms"), timings)
    failures = [(level.users, code, count) for level in run.levels for code, count in level.errors.items()]
    if failures:
        yield table(("users", "failure", "requests"), failures)
    if run.interrupted:
        yield "It was interrupted: these are the figures until then."


def levels_table(levels: Sequence[Figures]) -> Table:
    """Return the figures by the number of users, with the rate as a multiple of the first one's. Times in ms."""
    base = levels[0].tokens_per_s if levels else 0.0
    rows = [
        (
            one.users,
            one.answered,
            one.failed,
            one.cut,
            _number(one.tokens_per_s),
            f"{one.tokens_per_s / base:.2f}" if base else "",
            _number(one.tokens_per_s_user),
            _number(one.answering_tokens_per_s),
            *_waits(one.first_token_ms, one.inter_token_ms),
            f"{one.cached_tokens / one.prompt_tokens:.0%}" if one.prompt_tokens else "",
            f"{one.accepted / one.drafted:.0%}" if one.drafted else "",
        )
        for one in levels
    ]
    columns = ("users", "answers", "failed", "cut", "tokens/s", "times", "of a user", "answering", *_WAITS, "cached")
    return table((*columns, "guessed"), rows)


def changes_table(before: Run, now: Run, found: Sequence[Change]) -> Iterator[Table | str]:
    """Yield what changed since an earlier run, and what was not the same to begin with."""
    yield f"Against {before.name} ({moment(before.made_s)}):"
    yield from differences(before, now)
    if not found:
        yield "They have no number of users in common."
        return
    rows = [(one.users, one.name, _number(one.before), _number(one.now), _change(one.better_percent)) for one in found]
    yield table(("users", "figure", "before", "now", "change"), rows)


def runs_table(runs: Sequence[Run]) -> Table:
    """Return the runs that are kept, a row for each number of users."""
    rows = [
        (
            run.name,
            moment(run.made_s),
            run.load.model,
            level.users,
            _number(level.tokens_per_s),
            _number(level.first_token_ms.p50),
            _number(level.inter_token_ms.p50),
            level.failed,
            "interrupted" if run.interrupted else "",
        )
        for run in runs
        for level in run.levels
    ]
    columns = ("name", "made", "model", "users", "tokens/s", "first token p50 ms", "between p50 ms", "failed", "note")
    return table(columns, rows)


def asked_for(run: Run) -> str:
    """Say how a run was asked for, in a line."""
    load = run.load
    how_long = (
        f"{counted(load.requests, 'request')} of each user" if load.requests else f"{load.duration_s:g} s for each"
    )
    ends = "ending by themselves, at most" if load.natural else "each of"
    return f"{how_long}, prompts {load.mix}, answers {ends} {counted(load.max_tokens, 'token')}"


def _waits(first: Spread, inter: Spread) -> tuple[str, ...]:
    return tuple(_number(value) for value in (first.p50, first.p95, inter.p50, inter.p95))


def _mean(total: int, count: int) -> str:
    return str(round(total / count)) if count else ""


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.1f}"


def _change(better_percent: float | None) -> str:
    if better_percent is None:
        return ""
    return f"{abs(better_percent):.1f} % {'better' if better_percent > 0 else 'worse'}" if better_percent else "same"
