from __future__ import annotations

import logging
from collections.abc import Sequence

from agent.doctor.findings import Finding, as_lines, examine, exit_code, fine, in_thread, problem, unknown


async def breaks() -> Sequence[Finding]:
    raise RuntimeError("canary")


async def test_a_check_that_breaks_is_a_finding_and_the_others_run() -> None:
    logging.getLogger("agent.doctor").setLevel(logging.INFO)
    found = await examine([("odd", breaks), ("disk", in_thread(lambda free: [fine("disk", free)], "9 GB"))])
    assert [(finding.check, finding.verdict) for finding in found] == [("odd", "unknown"), ("disk", "ok")]
    assert "canary" not in "".join(as_lines(found))


def test_each_finding_is_a_line_and_a_problem_says_what_to_do() -> None:
    found = [fine("port", "answers"), problem("disk", "is full", "Free some."), unknown("token", "no layer")]
    assert as_lines(found) == [
        "ok       port: answers",
        "PROBLEM  disk: is full",
        "          -> Free some.",
        "?        token: no layer",
    ]
    assert exit_code(found) == 1
    assert exit_code(found[::2]) == 0
