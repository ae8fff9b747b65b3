"""Every child process of the agent is started in the same way."""

from __future__ import annotations

import ast
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

import agent
from agent.children import MAX_LETTERS, MAX_LINES, log_words

STARTERS = {"run", "Popen", "call", "check_call", "check_output"}
MAC_ONLY = {"link/binding.py"}
STARTER = "update/start.py"
"""Stands for the program it starts: that one has its window, or none, and speaks where it would."""
ITSELF = {"update/launch.py", STARTER}
"""A version on trial is the agent, and speaks where the agent does."""
LOG = logging.getLogger("agent.children.test")


def child_starts() -> Iterator[tuple[str, ast.Call]]:
    """Find what starts a child, by file."""
    root = Path(agent.__file__).parent
    for path in sorted(root.rglob("*.py")):
        for call in ast.walk(ast.parse(path.read_bytes())):
            if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
                continue
            owner, name = ast.unparse(call.func.value), call.func.attr
            if (owner == "subprocess" and name in STARTERS) or name in ("create_subprocess_exec", "subprocess_exec"):
                yield path.relative_to(root).as_posix(), call


def test_no_child_opens_a_window_and_none_speaks_unheard() -> None:
    starts = dict(child_starts())
    assert {"devices.py", "orders.py", "stage/process.py"} <= set(starts)
    for place, call in starts.items():
        given = {word.arg: ast.unparse(word.value) for word in call.keywords}
        assert place in {*MAC_ONLY, STARTER} or given.get("creationflags") == "NO_WINDOW", f"{place}:{call.lineno}"
        heard = given.get("capture_output") == "True" or given.get("stderr", "").endswith("PIPE")
        assert heard or place in ITSELF, f"{place}:{call.lineno}"


@pytest.mark.parametrize(
    ("stderr", "lines"),
    [
        (None, []),
        (b"", []),
        (b"\n \n", []),
        (b"one\r\n\n two", ["one", "two"]),
        (b"\xff\n", ["\N{REPLACEMENT CHARACTER}"]),
        (b"x" * (2 * MAX_LETTERS), ["x" * MAX_LETTERS]),
        (
            b"".join(b"%d\n" % number for number in range(2 * MAX_LINES)),
            [str(n) for n in range(MAX_LINES, 2 * MAX_LINES)],
        ),
    ],
)
def test_a_childs_last_words_are_logged_and_bounded(
    stderr: bytes | None, lines: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    assert log_words(LOG, "child", stderr) == (lines[-1] if lines else "")
    assert caplog.messages == [f"child: {line}" for line in lines]
