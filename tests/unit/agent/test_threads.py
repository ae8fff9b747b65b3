"""Work in threads that outlives whoever waits for it: nothing that it opens is left without an owner."""

from __future__ import annotations

import ast
import asyncio
import sys
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import BinaryIO

import pytest

import agent
import console
from agent.link.store import Store
from agent.threads import finish_in_thread
from tests.support.patience import PATIENCE_S


class Slow:
    """Work that says when it began and ends when it is let."""

    def __init__(self, work: Callable[[], object]) -> None:
        self.began = asyncio.Event()
        self.may_end = threading.Event()
        self._work = work
        self._loop = asyncio.get_running_loop()

    def __call__(self) -> object:
        self._loop.call_soon_threadsafe(self.began.set)
        assert self.may_end.wait(PATIENCE_S)
        return self._work()


async def _cancelled(slow: Slow, release: Callable[[object], object], times: int) -> None:
    """Cancel the wait for `slow` so many times before it may end, and see it passed on."""
    waiting = asyncio.ensure_future(finish_in_thread(slow, release))
    await slow.began.wait()
    for _ in range(times):
        waiting.cancel()
        await asyncio.sleep(0)
        assert not waiting.done(), "it was not waited for"
    slow.may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_what_the_work_returns_or_raises_is_what_is_had() -> None:
    assert await finish_in_thread(partial(int, "7")) == 7
    with pytest.raises(ValueError, match="invalid literal"):
        await finish_in_thread(partial(int, "seven"))
    with pytest.raises(SystemExit, match="the end"):
        await finish_in_thread(partial(sys.exit, "the end"))


async def test_the_work_sees_the_context_of_whoever_waits_for_it() -> None:
    said = ContextVar("said", default="nothing")
    said.set("something")
    assert await finish_in_thread(said.get) == "something"


@pytest.mark.parametrize("times", [1, 3])
async def test_what_was_opened_for_nobody_is_released_before_the_cancel_is_passed_on(times: int) -> None:
    released: list[object] = []
    await _cancelled(Slow(lambda: "a file"), released.append, times)
    assert released == ["a file"]


async def test_work_that_fails_for_nobody_releases_nothing_and_is_no_noise() -> None:
    released: list[object] = []
    await _cancelled(Slow(lambda: int("seven")), released.append, 1)
    assert released == []


async def test_a_file_opened_for_a_fetch_that_is_cancelled_is_closed(tmp_path: Path) -> None:
    store, opened = Store(tmp_path / "store"), list[BinaryIO]()

    def open_part() -> object:
        part = store.open_part("ab" * 32)
        opened.append(part._file)
        return part

    await _cancelled(Slow(open_part), lambda part: part.close(), 1)  # type: ignore[attr-defined]
    assert [file.closed for file in opened] == [True]


async def test_cancelled_before_it_began_it_still_ends() -> None:
    released: list[object] = []
    waiting = asyncio.ensure_future(finish_in_thread(lambda: 7, released.append))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert released == [7]


READS = {
    "checked", "look", "look_at", "place", "tail",
    "_chunk", "_fleet", "_load", "_misfit", "_problem_of", "_service_file", "api_tls", "client_context",
    "held", "hello", "load", "load_identity", "load_key", "manifest", "missing", "peer_server_context", "plan",
    "read_mark", "refusal", "_plans", "runtime", "this_pc", "what_if",
}  # fmt: skip
"""What may be left to itself when whoever waits for it is cancelled: it only reads, and its result owns nothing."""


WAIT = {"agent/threads.py", "console/api/openai/prompts.py"}
"""What decides by itself who waits: one for the end of the work, the other for its turn, and its work makes tokens."""


def left_to_themselves() -> Iterator[tuple[str, str]]:
    """Find what runs in a thread that nobody may wait for: file and name; the name is empty where it is not called."""
    for package in (agent, console):
        root = Path(package.__path__[0])
        for path in sorted(root.rglob("*.py")):
            tree = ast.parse(path.read_bytes())
            calls = {id(node.func): node for node in ast.walk(tree) if isinstance(node, ast.Call)}
            for node in ast.walk(tree):
                if isinstance(node, ast.Attribute) and node.attr in ("to_thread", "run_in_executor"):
                    call = calls.get(id(node))
                    work = ast.unparse(call.args[0]) if call and node.attr == "to_thread" else ""
                    yield path.relative_to(root.parent).as_posix(), work.rpartition(".")[2]


def test_only_what_reads_is_left_to_itself_when_its_task_is_cancelled() -> None:
    found = [(place, name) for place, name in left_to_themselves() if place not in WAIT]
    assert [one for one in found if one[1] not in READS] == []
    assert {name for _, name in found} == READS
