"""A real child process: loads, answers, dies in every way a child can, and is never left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import struct
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import psutil
import pytest

from agent.link.frames import Frame, FrameType, decode, encode
from agent.link.stage_messages import AdvanceEpoch
from agent.stage.errors import StageGone, StageLoadError
from agent.stage.pipes import encode_spec
from agent.stage.process import StageProcess
from agent.stage.types import Epoch, Nack, PipelineId, Sampling, StageReport, StepTable
from tests.support.leaks import child_processes
from tests.support.spelling_library import spelling_library, spelling_tokenizer
from tests.support.stage import make_row, make_spec, make_step
from tests.support.toy_library import toy_library

ROOT = Path(__file__).resolve().parents[2]
WAIT_S = 60


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("toy")
    toy_library(folder)
    return folder


class Child:
    """A stage process with what it said."""

    def __init__(self) -> None:
        self.frames: asyncio.Queue[bytes] = asyncio.Queue()
        self.cause: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.process: StageProcess

    async def start(self, library: Path, **fields: Any) -> StageProcess:
        self.process = await StageProcess.start(
            make_spec(library, **fields), on_frame=self.frames.put_nowait, on_exit=self.cause.set_result
        )
        return self.process

    async def answer(self, data: bytes) -> Any:
        await self.process.send(data)
        return decode(await asyncio.wait_for(self.frames.get(), WAIT_S))


@pytest.fixture
async def child(library: Path) -> AsyncIterator[Child]:
    child = Child()
    await child.start(library)
    yield child
    await child.process.close()


def ids(count: int) -> Any:
    return np.arange(count) % 60


async def test_a_loaded_stage_reports_and_answers(child: Child) -> None:
    assert child.process.report.fused
    frame = await child.answer(make_step([make_row(1, 0, 4), make_row(2, 0, 3)], ids(7)))
    assert frame.type is FrameType.TOKENS
    assert frame.tensor.shape == (2,)
    assert len(msgspec.msgpack.decode(frame.table, type=StepTable).timings) == 1


@pytest.mark.parametrize("readable", [True, False])
async def test_a_tail_reads_what_grammars_need_before_it_reports(tmp_path: Path, readable: bool) -> None:
    file = tmp_path / spelling_library(tmp_path).tokens.files[0].path
    if not readable:
        file.write_text("{}")
    child = Child()
    process = await child.start(tmp_path)
    assert process.report.constrains == readable
    file.unlink()
    sampling = Sampling(grammar='start: "abc"', answer_start=1)
    answer = await child.answer(make_step([make_row(1, 0, 1, sampling=sampling, ids=[5])], ids(1) + 5))
    refused = msgspec.msgpack.decode(answer.table, type=StepTable).refused
    assert [refusal.stream for refusal in refused] == ([] if readable else [1])
    if readable:
        assert answer.tensor.tolist() == spelling_tokenizer().encode("a").ids
    await process.close()


async def test_a_stage_that_guesses_only_reads_nothing_for_grammars(tmp_path: Path) -> None:
    spelling_library(tmp_path)
    child = Child()
    process = await child.start(tmp_path, constrains=False)
    assert not process.report.constrains
    await process.close()


async def test_steps_are_answered_in_order(child: Child) -> None:
    for at in range(20):
        await child.process.send(make_step([make_row(1, at)], ids(1), sequence=at))
    answers = [decode(await asyncio.wait_for(child.frames.get(), WAIT_S)).sequence for _ in range(20)]
    assert answers == list(range(20))


async def test_a_refused_step_leaves_the_stage_running(child: Child) -> None:
    refused = await child.answer(make_step([make_row(1, 3)], ids(1)))
    assert msgspec.msgpack.decode(refused.table, type=Nack).code == "bad_step"
    assert (await child.answer(make_step([make_row()], ids(1)))).type is FrameType.TOKENS


async def test_large_frames_pass_both_ways(library: Path) -> None:
    child = Child()
    await child.start(library, last=2, context_tokens=40_000, streams=1)
    frame = await child.answer(make_step([make_row(1, 0, 20_000)], ids(20_000)))
    assert frame.tensor.nbytes == 20_000 * 32 * 4
    await child.process.close()


async def test_closing_ends_the_child_in_silence(child: Child) -> None:
    await child.process.close()
    assert not psutil.pid_exists(child.process.pid)
    assert not child.cause.done()
    with pytest.raises(StageGone):
        await child.process.send(b"")


async def test_closing_does_not_wait_for_a_running_step(library: Path) -> None:
    child = Child()
    await child.start(library, context_tokens=30_000, streams=1)
    await child.process.send(make_step([make_row(1, 0, 30_000)], ids(30_000)))
    await child.process.close()
    assert child.frames.empty()


async def test_a_stopped_child_is_killed(child: Child) -> None:
    os.kill(child.process.pid, signal.SIGSTOP)
    async with asyncio.timeout(WAIT_S):  # by itself it would never end
        await child.process.close()


async def test_closing_again_is_fine(child: Child) -> None:
    await asyncio.gather(child.process.close(), child.process.close())


async def test_a_killed_child_is_noticed_with_its_cause(child: Child) -> None:
    os.kill(child.process.pid, signal.SIGKILL)
    assert "signal 9" in await asyncio.wait_for(child.cause, WAIT_S)
    assert not child.process.running
    with pytest.raises(StageGone):
        await child.process.send(make_step([make_row()], ids(1)))


async def test_bytes_that_are_no_frame_end_the_child_with_its_last_words(child: Child) -> None:
    await child.process.send(b"x" * 200)
    cause = await asyncio.wait_for(child.cause, WAIT_S)
    assert "exit code 2" in cause
    assert "not a frame" in cause


async def test_an_interrupt_from_the_terminal_does_not_end_the_child(child: Child) -> None:
    os.kill(child.process.pid, signal.SIGINT)
    assert (await child.answer(make_step([make_row()], ids(1)))).type is FrameType.TOKENS


async def test_a_library_that_is_not_there_fails_with_the_childs_own_code(tmp_path: Path) -> None:
    with pytest.raises(StageLoadError) as caught:
        await Child().start(tmp_path)
    assert caught.value.code == "damaged"


async def test_a_load_that_takes_too_long_fails_and_leaves_nothing(library: Path) -> None:
    with pytest.raises(StageLoadError, match="not loaded within") as caught:
        await StageProcess.start(make_spec(library), on_frame=print, on_exit=print, timeout_s=0.01)
    assert caught.value.code == "load"


async def test_a_cancelled_start_leaves_nothing(library: Path) -> None:
    before = child_processes()
    task = asyncio.ensure_future(Child().start(library))
    while not child_processes() - before:  # nothing announces the child's birth
        await asyncio.sleep(0.001)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not child_processes() - before


@pytest.mark.skipif(sys.platform != "linux", reason="pinning is for Linux")
async def test_the_computing_thread_has_its_core_to_itself(library: Path) -> None:
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        pytest.skip("one core only")
    child = Child()
    await child.start(library, cores=[cores[1]])
    await child.answer(make_step([make_row()], ids(1)))
    threads = psutil.Process(child.process.pid).threads()
    placed = {thread.id: os.sched_getaffinity(thread.id) for thread in threads}
    assert placed[child.process.pid] == {cores[1]}
    assert any(cores[1] not in where for where in placed.values()), "the reader must stay beside"
    await child.process.close()


async def test_a_child_goes_on_in_another_epoch_and_drops_what_it_had_to_do(child: Child) -> None:
    await child.answer(make_step([make_row(1, 0, 4)], ids(4)))
    for at in range(4, 30):
        await child.process.send(make_step([make_row(1, at)], ids(1), step=at))
    order = msgspec.msgpack.encode(AdvanceEpoch(PipelineId(7), Epoch(2), Epoch(3), 0))
    await child.process.send(encode(Frame(FrameType.DIRECT, 7, 2, 0, 0, 0, order, None)))
    await child.process.send(make_step([make_row(1, 0, 4)], ids(4), epoch=3, step=40))
    frames: list[Any] = []
    while not frames or frames[-1].step != 40:
        frames.append(decode(await asyncio.wait_for(child.frames.get(), WAIT_S)))
    *old, report, last = frames
    assert all((frame.type, frame.epoch) == (FrameType.TOKENS, 2) for frame in old)
    assert (report.type, report.epoch, last.type, last.epoch) == (FrameType.REPORT, 3, FrameType.TOKENS, 3)
    assert msgspec.msgpack.decode(report.table, type=StageReport) == child.process.report


def worker(data: bytes) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "agent.stage.worker"]
    return subprocess.run(command, input=data, capture_output=True, cwd=ROOT, timeout=WAIT_S, check=False)


def test_a_child_whose_parent_says_nothing_ends_quietly() -> None:
    done = worker(b"")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


@pytest.mark.parametrize("data", [struct.pack("<I", 1 << 30), struct.pack("<I", 3) + b"\xc1\xc1\xc1"])
def test_a_spec_that_cannot_be_read_ends_the_child_with_a_sentence(data: bytes) -> None:
    done = worker(data)
    assert done.returncode == 2
    assert b"stage description" in done.stderr
    assert done.stdout == b""


def test_a_parent_that_leaves_during_the_load_takes_the_child_with_it(library: Path) -> None:
    assert worker(encode_spec(make_spec(library))).returncode == 0
