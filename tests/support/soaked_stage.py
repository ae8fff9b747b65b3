"""A stage's child process that says what of its cache is held, and by how many streams."""

from __future__ import annotations

import os
import sys
from typing import Any

from agent.stage import worker
from agent.stage.engines.paged import PagedEngine
from agent.stage.steps import StepRunner
from tests.support.telling import Held, own_path, tell_when_asked


def main() -> int:
    """Run as `agent.stage.worker` does."""
    runners: list[StepRunner] = []
    begin = StepRunner.__init__

    def begin_known(runner: StepRunner, *arguments: Any, **named: Any) -> None:
        begin(runner, *arguments, **named)
        runners.append(runner)

    StepRunner.__init__ = begin_known  # type: ignore[assignment, method-assign]  # to see it
    tell_when_asked(own_path(), lambda: held_by(runners[0]))
    return worker.main()


def held_by(runner: StepRunner) -> Held:
    """Count what streams hold of a stage: positions, blocks, and memory at the tail."""
    engine, tail = runner._engine, runner._tail
    assert isinstance(engine, PagedEngine)
    held = {
        "streams": len(engine._lengths),
        "holders": len(engine._pool.holders),
        "tokens": engine.kv_tokens - engine._pool.free_tokens,
    }
    if tail is not None:
        sampled = {stream for kind in (tail._sampling, tail._histories, tail._shifts) for stream in kind}
        held |= {"sampled": len(sampled), "constraints": len(tail._constraints), "refused": len(tail._refused)}
    return held


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    os._exit(code)  # as the worker itself ends
