"""PCs that die at random, over and over, under load: every answer is whole, and the console is as idle as before.

Real processes and links, a small model in `exact` in two stages with a hot standby. An answer is compared with what
its question got while nobody was disturbed.
"""

from __future__ import annotations

import itertools
import os
import random
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from console.api.admin import types as wire
from console.client import AdminClient
from installer.loopback import AgentSettings, LoopbackFleet
from tests.support.faults import Fault, Faults
from tests.support.streamed import Question, stream
from tests.support.talking_library import talking_library
from tests.support.watched_console import Look

pytestmark = pytest.mark.skipif(os.name == "nt", reason="processes are killed and asked by signals")

PCS = ("first", "second", "third")
STREAMS = 4
CONTEXT = 256
QUESTIONS = [
    Question(f"Number {number} tells of the sea.", 40 + 20 * (number % 4), 0.8 * (number % 2), number)
    for number in range(2 * STREAMS)
]
IDLE_S = 1.0
IDLE_SHARE = 0.1
"""Of one core, at most, while nobody asks anything: heartbeats, probes, and a look at the status."""
LOG_BYTES_PER_KILL = 16_384
WHOLE_WAIT_S = 120.0


class Clients:
    """Ask all the time, several at once, until told to stop; what was wrong is kept."""

    def __init__(self, fleet: LoopbackFleet, expected: Sequence[str]) -> None:
        self._fleet, self._expected = fleet, expected
        self._stop = threading.Event()
        self._answered = threading.Condition()
        self.answers = 0
        self.wrong: list[str] = []

    def check_status(self) -> None:
        """A model that is said to be ready answers a request for one token."""
        with AdminClient.for_data_folder(self._fleet.console_folder) as admin:
            while not self._stop.wait(0.05):
                view = admin.status().pipelines[0]
                if view.state == "ready" and view.probe.ok:
                    heard = ask(self._fleet, Question("Yes or no", 1))
                    if heard.startswith("["):
                        self.fail(f"the status said ready: {view}, and one token got {heard}")

    def fail(self, why: str) -> None:
        with self._answered:
            self.wrong.append(why)
            self._answered.notify_all()

    @contextmanager
    def asking(self) -> Iterator[None]:
        threads = [threading.Thread(target=self._ask, args=(number,)) for number in range(STREAMS - 1)]
        threads.append(threading.Thread(target=self.check_status))
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._stop.set()
            for thread in threads:
                thread.join()

    def wait_for_more(self, count: int) -> None:
        """Wait until so many more answers have come: then the model works again."""
        with self._answered:
            wanted = self.answers + count
            assert self._answered.wait_for(lambda: self.answers >= wanted or self.wrong, WHOLE_WAIT_S), "no answer came"

    def _ask(self, number: int) -> None:
        for index in itertools.count(number, STREAMS - 1):
            if self._stop.is_set():
                return
            which = index % len(QUESTIONS)
            heard = ask(self._fleet, QUESTIONS[which])
            with self._answered:
                if heard != self._expected[which]:
                    self.wrong.append(f"question {which}: {heard!r} instead of {self._expected[which]!r}")
                self.answers += 1
                self._answered.notify_all()


def ask(fleet: LoopbackFleet, question: Question) -> str:
    """Return the answer, or why there is none."""
    heard = stream(fleet.api_url, fleet.chat_key, fleet.model, question)
    return f"[{heard.problem}]" if heard.problem else heard.text


def is_whole(view: wire.PipelineView) -> bool:
    idle = not view.running and not view.queued
    return view.state == "ready" and idle and any(standby.ready for standby in view.standbys)


def wait_until_whole(fleet: LoopbackFleet) -> None:
    fleet.wait_for_agents(len(PCS))
    deadline_s = time.monotonic() + WHOLE_WAIT_S
    while not is_whole(view := fleet.admin.status().pipelines[0]):
        assert time.monotonic() < deadline_s, view
        time.sleep(0.05)


def look(fleet: LoopbackFleet) -> Look:
    return Look.at(fleet.process("console").pid, fleet.console_folder)


def wait_until_idle(fleet: LoopbackFleet, before: Look) -> Look:
    """Wait until the console holds no more tasks and files than before, and computes and logs hardly anything."""
    wait_until_whole(fleet)
    deadline_s = time.monotonic() + WHOLE_WAIT_S
    last = look(fleet)
    while True:
        share = idle_share(fleet)
        now = look(fleet)  # not in that span: counting what is held takes longer than all else
        as_before = now.tasks <= before.tasks + 2 and now.files <= before.files + 4
        if share < IDLE_SHARE and as_before and now.log_bytes == last.log_bytes:
            return now
        assert time.monotonic() < deadline_s, (share, before, last, now)
        last = now


def idle_share(fleet: LoopbackFleet) -> float:
    """Watch the console for a moment; returns the share of one core it takes."""
    process = psutil.Process(fleet.process("console").pid)
    before, before_s = process.cpu_times(), time.monotonic()
    time.sleep(IDLE_S)  # what is measured is a span of time
    after = process.cpu_times()
    return float(after.user + after.system - before.user - before.system) / (time.monotonic() - before_s)


def kill_often(fleet: LoopbackFleet, faults: Faults, clients: Clients, kills: int, chance: random.Random) -> None:
    """Kill an agent or a stage at some moment of the answers, again and again; the system starts agents again."""
    for _ in range(kills):
        if chance.random() < 0.8:
            clients.wait_for_more(chance.randint(1, STREAMS))  # else the next one dies while the last is recovered from
        fault: Fault = "kill-agent" if chance.random() < 0.5 else "kill-stage"
        faults.do(fault, chance.choice(PCS))
        faults.undo()
        assert not clients.wrong


def soak(folder: Path, kills: int) -> None:
    library = talking_library(folder / "library")
    chance = random.Random(3)
    agents = [AgentSettings(name, 1) for name in PCS]
    with (
        LoopbackFleet(folder / "fleet", agents, console="tests.support.watched_console") as fleet,
        Faults(fleet) as faults,
    ):
        model = fleet.admin.add_library(library).model_id
        fleet.deploy(
            wire.DeployRequest(
                model=model, stages=2, context=CONTEXT, streams=STREAMS, numerics="exact", standbys=1, standby="hot"
            )
        )
        expected = [ask(fleet, question) for question in QUESTIONS]
        assert not any(text.startswith("[") for text in expected), expected
        wait_until_whole(fleet)
        before = look(fleet)
        clients = Clients(fleet, expected)
        with clients.asking():
            kill_often(fleet, faults, clients, kills, chance)
            clients.wait_for_more(STREAMS)
        assert not clients.wrong
        after = wait_until_idle(fleet, before)
        assert after.threads <= before.threads + 2
        assert after.rss_mb <= before.rss_mb + 48
        assert after.log_bytes - before.log_bytes < kills * LOG_BYTES_PER_KILL
        assert len(fleet.admin.agents()) == len(PCS)


@pytest.mark.timeout(180)
def test_a_few_random_kills_cut_no_answer_and_leave_nothing(tmp_path: Path) -> None:
    soak(tmp_path, kills=3)


@pytest.mark.slow
@pytest.mark.timeout(5400)
def test_two_hundred_random_kills_cut_no_answer_and_leave_nothing(tmp_path: Path) -> None:
    soak(tmp_path, kills=200)
