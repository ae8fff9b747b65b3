"""What a check found, and how findings are shown. Pure."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Literal

import msgspec

from agent.threads import finish_in_thread

log = logging.getLogger(__name__)

Verdict = Literal["ok", "problem", "unknown"]


class Finding(msgspec.Struct, frozen=True):
    """One line: what was looked at, how it is, and for a problem what to do. `unknown`: it could not be looked at."""

    check: str
    verdict: Verdict
    said: str
    advice: str = ""


def fine(check: str, said: str) -> Finding:
    """All is well."""
    return Finding(check, "ok", said)


def problem(check: str, said: str, advice: str) -> Finding:
    """Something is wrong."""
    return Finding(check, "problem", said, advice)


def unknown(check: str, said: str, advice: str = "") -> Finding:
    """It could not be looked at."""
    return Finding(check, "unknown", said, advice)


Check = Callable[[], Awaitable[Sequence[Finding]]]


def in_thread(check: Callable[..., Sequence[Finding]], *arguments: object) -> Check:
    """Return a check that runs a blocking one in a thread."""

    async def run() -> Sequence[Finding]:
        return await finish_in_thread(partial(check, *arguments))

    return run


async def examine(checks: Iterable[tuple[str, Check]]) -> list[Finding]:
    """Run checks one after the other. One that breaks is a finding itself, and the others run all the same."""
    found: list[Finding] = []
    for name, check in checks:
        try:
            found += await check()
        except Exception as error:  # the edge of a check: a doctor that stops at the first odd thing helps nobody
            log.debug("The check %s failed.", name, exc_info=True)
            found.append(unknown(name, f"the check failed ({type(error).__name__})", "Report this; the log says more."))
    return found


def as_lines(findings: Iterable[Finding]) -> list[str]:
    """Return findings for people to read."""
    signs = {"ok": "ok      ", "problem": "PROBLEM ", "unknown": "?       "}
    lines = []
    for finding in findings:
        lines.append(f"{signs[finding.verdict]} {finding.check}: {finding.said}")
        if finding.advice:
            lines.append(f"          -> {finding.advice}")
    return lines


def exit_code(findings: Iterable[Finding]) -> int:
    """1 if there is a problem."""
    return int(any(finding.verdict == "problem" for finding in findings))
