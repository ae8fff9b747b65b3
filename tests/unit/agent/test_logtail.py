"""agent.logtail: what an administrator may read of this PC's log, and that nothing of its owner is in it."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from agent.logtail import KEPT, LONGEST, LogTail


def said(tail: LogTail, logger: str, text: str, *arguments: object, level: int = logging.INFO) -> None:
    tail.handle(logging.LogRecord(logger, level, __file__, 1, text, arguments, None))


@pytest.fixture
def tail() -> LogTail:
    return LogTail(Path("/home/ann"))


def test_what_was_done_for_others_is_kept_in_order(tail: LogTail) -> None:
    said(tail, "agent.session", "Handing the stages over.")
    said(tail, "agent.link.fetch", "%d files came.", 3, level=logging.WARNING)
    first, second = tail.last(10)
    assert first.endswith(" INFO agent.session: Handing the stages over.")
    assert second.endswith(" WARNING agent.link.fetch: 3 files came.")
    assert tail.last(1) == [second]
    assert tail.last(0) == tail.last(-3) == []


@pytest.mark.parametrize(
    "logger", ["agent", "agent.volunteer.duty", "agent.control.server", "agent.program", "agent.tray", "agent.linked"]
)
def test_what_is_logged_of_the_owner_stays_here(tail: LogTail, logger: str) -> None:
    said(tail, logger, "Somebody plays a game.", level=logging.ERROR)
    assert tail.last(10) == []


def test_a_line_names_no_home_and_holds_no_second_line(tail: LogTail) -> None:
    said(tail, "agent.link.mark", "%s cannot be written.\nAll is well.\u202e", "/home/ann/fallow")
    (line,) = tail.last(1)
    assert line.endswith("~/fallow cannot be written. All is well. ")


def test_lines_and_their_length_are_bounded(tail: LogTail) -> None:
    for number in range(KEPT + 5):
        said(tail, "agent.stages", "%d %s", number, "x" * 1000)
    lines = tail.last(2 * KEPT)
    assert len(lines) == KEPT
    assert {len(line) for line in lines} == {LONGEST}
    assert ": 5 x" in lines[0]


def test_an_error_is_named_and_its_traceback_stays(tail: LogTail) -> None:
    try:
        int("a secret")
    except ValueError as error:
        info = (type(error), error, error.__traceback__)
    tail.handle(logging.LogRecord("agent.loading", logging.ERROR, __file__, 1, "A delivery failed.", (), info))
    (line,) = tail.last(1)
    assert line.endswith("A delivery failed. (ValueError)")


def test_what_cannot_be_put_into_its_line_is_left_out(tail: LogTail) -> None:
    said(tail, "agent.stages", "%d", "no number")
    assert tail.last(10) == []
