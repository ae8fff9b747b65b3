"""`drill`: PCs leave in the middle of four answers, and what their clients notice of it.

Four PCs serve the model in two stages, in `exact`, with two standbys; every PC's link passes a userspace one. A fifth
gives the answers that nobody disturbs, from a pipeline of its own. The cases are in `drill_cases`, the faults in
`tests.support.faults`; the README of this folder says what the keys mean.
"""

from __future__ import annotations

import functools
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from console.bench.texts import long_prompt
from installer.demo import demo_library
from installer.processes import LoopbackError
from tests.bench.drill_cases import HARMLESS, LONG_WORDS, Case, Seen, Standby, overall, select
from tests.bench.drill_fleet import CONTEXT, POLL_S, STREAMS, DrillFleet
from tests.bench.json_process import ROOT
from tests.bench.served import at_once
from tests.support.faults import Faults
from tests.support.streamed import Heard, Question, difference

Say = Callable[[str], None]
ROUNDS = 1
"""Every case once takes long enough."""
UNNOTICED_S = 6.0
"""How long a fault is looked for in the status when the answers end without a sign of it."""
FIRST_GUESS_S = 15.0
"""How long a case takes, before one was seen."""


def run(*, rounds: int, tokens: int, say: Say, cases: str = "") -> dict[str, Any]:
    """Drill the cases that fit the patterns, `rounds` times; `tokens` means nothing here."""
    del tokens
    chosen = select(cases)
    library = demo_library(ROOT / ".fallow" / "demo", say)
    seen: list[Seen] = []
    with tempfile.TemporaryDirectory(prefix="fallow-drill-") as name, ExitStack() as stack:
        fleet = stack.enter_context(DrillFleet(Path(name), library, say))
        faults = stack.enter_context(fleet.faults())
        drill = Drill(fleet, faults, say)
        began_s, total = time.monotonic(), rounds * len(chosen)
        for round_ in range(rounds):
            for case in chosen:
                each_s = (time.monotonic() - began_s) / len(seen) if seen else FIRST_GUESS_S
                left = f"about {max(1, round(each_s * (total - len(seen)) / 60))} min left"
                say(f"case {len(seen) + 1} of {total}, {left}: {case.name}")
                seen.append(drill.run(case, round_))
                say(f"  {seen[-1].plain()}")
        replay = {kind: round(rate, 1) for kind, rate in drill.read_per_s.items()}
    return {
        **overall(seen),
        "replay_tokens_per_s": replay,
        "streams": STREAMS,
        "context": CONTEXT,
        "numerics": "exact",
        "rounds": rounds,
        "by_case": [one.plain() for one in seen],
    }


class Running:
    """Questions that are asked at once; the first one's tokens say when the moment has come."""

    def __init__(self, fleet: DrillFleet, questions: Sequence[Question], fires_at: int) -> None:
        """`fires_at` 0: while the prompts are read."""
        self.heard = [Heard() for _ in questions]
        self._fleet, self._fires_at = fleet, fires_at
        self._moment = threading.Event()
        # Daemons, because Ctrl-C does not wait for answers that nobody gives any more.
        self._threads = [
            threading.Thread(target=self._ask, args=(question, index), daemon=True)
            for index, question in enumerate(questions)
        ]

    def begin(self) -> None:
        """Ask all of them."""
        for thread in self._threads:
            thread.start()

    def wait_for_moment(self) -> None:
        """Return when the fault is due, or there is no first answer any more.

        Prompts are read once all have a place and until the first token came.
        """
        while not self._moment.wait(POLL_S):
            if not self._fires_at and self._fleet.running() == len(self.heard):
                return

    def wait_for_ends(self) -> None:
        """Return when every answer has ended, somehow."""
        for thread in self._threads:
            thread.join()

    def _ask(self, question: Question, index: int) -> None:
        def on_token(count: int) -> None:
            if not self._fires_at or (not index and count >= self._fires_at):
                self._moment.set()

        self._fleet.ask(question, on_token=on_token, heard=self.heard[index])
        if not index:
            self._moment.set()


class Drill:
    """Runs cases one after the other; the fleet is as it was before the next one begins."""

    def __init__(self, fleet: DrillFleet, faults: Faults, say: Say) -> None:
        self._fleet, self._faults, self._say = fleet, faults, say
        self._asked = 0
        self.read_per_s: dict[Standby, float] = {}
        """How many tokens of prompts are read a second by all stages, nobody disturbed."""

    def run(self, case: Case, round_: int) -> Seen:
        """Ask four questions of both pipelines, disturb one of them, and compare."""
        self._prepare(case.standby)
        questions = self._questions(case.words, case.answer_tokens(CONTEXT))
        expected = self._undisturbed(questions)
        stage = (self._asked // STREAMS + round_) % self._fleet.stages()
        victim = self._fleet.pc_of(stage)
        running = Running(self._fleet, questions, case.fires_at(len(expected[0].tokens)))
        with self._fleet.watched() as watched:
            running.begin()
            running.wait_for_moment()
            at_s = self._faults.do(case.fault, victim)
            running.wait_for_ends()
            if case.fault not in HARMLESS:
                watched.wait_for_difference(at_s, UNNOTICED_S)
        back_s = self._put_right(case)
        notes = sorted(note for one in running.heard for note in one.notes if note[0] >= at_s)
        known = [came_s - at_s for came_s, _ in notes] + watched.differs_after_s(at_s)
        known += [one.ended_s - at_s for one in running.heard if one.problem]
        seen = self._judge(case, at_s, running.heard, expected)
        note = notes[0][1] if notes else ""
        return seen._replace(stage=stage, detect_s=min(known, default=None), note=note, back_s=back_s)

    def _judge(self, case: Case, at_s: float, heard: Sequence[Heard], expected: Sequence[Heard]) -> Seen:
        """Compare the answers with those that nobody disturbed."""
        differences = [difference(one, other) for one, other in zip(heard, expected, strict=True)]
        had = sum(one.heard_by(at_s) for one in heard)
        problems = [one.problem for one in heard if one.problem]
        return Seen(
            case,
            heard=had,
            gap_s=None if problems else max(one.silence_s(at_s) for one in heard),
            replay_s=(had + sum(one.prompt_tokens for one in expected)) / self.read_per_s[case.standby],
            lost=sum(one.lost for one in differences),
            added=sum(one.added for one in differences),
            text_equal=all(one.text == other.text for one, other in zip(heard, expected, strict=True)),
            problems=problems,
        )

    def _prepare(self, standby: Standby) -> None:
        """Have the model served with such standbys, and know how fast it reads."""
        if standby in self.read_per_s and self._fleet.standby == standby:
            return
        self._fleet.deploy(standby)
        questions = self._questions(LONG_WORDS, 2)
        expected = self._undisturbed(questions)
        asked_s = time.monotonic()
        heard = at_once([functools.partial(self._fleet.ask, question) for question in questions])
        if [one.text for one in heard] != [one.text for one in expected]:
            raise SystemExit(f"The pipelines differ before anything was disturbed: {[one.problem for one in heard]}")
        took_s = max(one.came_s[0] for one in heard) - asked_s
        self.read_per_s[standby] = sum(one.prompt_tokens for one in heard) / took_s
        self._say(f"with {standby} standbys {self.read_per_s[standby]:.0f} tokens of prompts are read a second")

    def _questions(self, words: int, tokens: int) -> list[Question]:
        """Make four that nobody has asked in this run, so that no cache helps; every other one is sampled."""
        first, self._asked = self._asked, self._asked + STREAMS
        return [
            Question(long_prompt(words, seed, lambda text: len(text.split())), tokens, 0.8 * (seed % 2), seed)
            for seed in range(first, first + STREAMS)
        ]

    def _undisturbed(self, questions: Sequence[Question]) -> list[Heard]:
        heard = at_once([functools.partial(self._fleet.ask_undisturbed, question) for question in questions])
        for one in heard:
            if one.problem:
                raise SystemExit(f"The answer that nobody disturbs failed: {one.problem}")
        return heard

    def _put_right(self, case: Case) -> float | None:
        """End the fault and wait until all is as before; None: it does not become so, and is made anew."""
        self._faults.undo()
        began_s = time.monotonic()
        try:
            self._fleet.wait_until_whole(case.standby)
        except LoopbackError as error:
            self._say(f"  not back after {case.name}: {error}")
            self._fleet.deploy(case.standby)
            return None
        return time.monotonic() - began_s
