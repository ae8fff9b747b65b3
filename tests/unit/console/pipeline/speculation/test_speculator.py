"""Rounds of scripted streams: how much is guessed follows how guesses fare, per stream, and the status says why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from agent.stage.types import Sampling, StreamId
from console.pipeline.speculation.counts import LAST_PROBE_ROUNDS, MOST_DRAFTS, PROBE_DRAFTS
from console.pipeline.speculation.proposers import LookupProposer
from console.pipeline.speculation.speculator import Speculator

ONE, TWO = StreamId(1), StreamId(2)


@dataclass
class Scripted:
    """A proposer with two kinds of guesses; it makes a stream wait while `pending`."""

    name: str = "scripted"
    kinds: int = 2
    draft_s: float = 0.0
    problem: str = ""
    offers: int | None = 0
    pending: bool = False
    begun: list[StreamId] = field(default_factory=list)
    forgotten: list[StreamId] = field(default_factory=list)
    asked: list[int] = field(default_factory=list)

    def begin(self, stream: StreamId, ids: Sequence[int], sampling: Sampling) -> None:
        self.begun.append(stream)

    def kind(self, stream: StreamId, ids: Sequence[int]) -> int | None:
        return None if self.problem else self.offers

    def propose(self, stream: StreamId, ids: Sequence[int], count: int) -> Sequence[int] | None:
        self.asked.append(count)
        return None if self.pending else [0] * count

    def forget(self, stream: StreamId) -> None:
        self.forgotten.append(stream)


def begin(proposer: Scripted, *streams: StreamId) -> Speculator:
    speculator = Speculator(proposer)
    for stream in streams:
        speculator.begin(stream, [1, 2], Sampling())
    return speculator


def play(
    speculator: Speculator, rounds: int, *, right: int, stream: StreamId = ONE, room: int = 100, hops_s: float = 0.0
) -> list[int]:
    """Play rounds alone in which the first `right` drafts are right; returns how many drafts each had."""
    counts = []
    for _ in range(rounds):
        drafts = speculator.drafts_for(stream, [1, 2], room)
        assert drafts is not None
        accepted = min(right, len(drafts))
        speculator.judged(stream, len(drafts), accepted)
        compute_s = 0.016 + 0.002 * len(drafts)
        speculator.round_took(1, 1 + len(drafts), 1 + accepted, hops_s + compute_s, compute_s)
        counts.append(len(drafts))
    return counts


def test_guessing_starts_once_a_round_was_measured() -> None:
    assert play(begin(Scripted(), ONE), 2, right=0) == [0, 2]


def test_right_drafts_become_more_and_wrong_ones_none() -> None:
    speculator = begin(Scripted(), ONE)
    assert play(speculator, 40, right=99)[-1] > 10
    assert sum(play(speculator, 60, right=0)[-20:]) <= 2 * PROBE_DRAFTS


def test_nothing_beyond_the_room_is_asked_for() -> None:
    speculator = begin(Scripted(), ONE)
    assert max(play(speculator, 40, right=99, room=3)) == 3
    assert max(play(speculator, 40, right=99)) <= MOST_DRAFTS


def test_more_is_guessed_over_slow_links() -> None:
    near, far = (play(begin(Scripted(), ONE), 60, right=3, hops_s=hops_s)[-1] for hops_s in (0.0, 0.2))
    assert far > near


def test_guessing_is_tried_again_now_and_then_and_comes_back() -> None:
    proposer = Scripted()
    speculator = begin(proposer, ONE)
    vain = play(speculator, 400, right=0)
    assert 2 <= sum(count > 0 for count in vain[100:]) <= 6
    again = play(speculator, 3 * LAST_PROBE_ROUNDS, right=99)
    assert again[-1] > 5


def test_each_stream_is_judged_by_its_own_drafts() -> None:
    speculator = begin(Scripted(), ONE, TWO)
    for _ in range(30):
        play(speculator, 1, right=99)
        play(speculator, 1, right=0, stream=TWO)
    assert play(speculator, 1, right=99)[0] > 5
    assert play(speculator, 1, right=0, stream=TWO)[0] <= 1


def test_a_new_stream_starts_from_what_others_saw() -> None:
    speculator = begin(Scripted(), ONE)
    play(speculator, 60, right=99)
    speculator.begin(TWO, [1], Sampling())
    assert play(speculator, 1, right=99, stream=TWO)[0] > 5


def test_kinds_of_guesses_are_judged_apart() -> None:
    proposer = Scripted()
    speculator = begin(proposer, ONE)
    for _ in range(30):
        proposer.offers = 0
        play(speculator, 1, right=0)
        proposer.offers = 1
        play(speculator, 1, right=99)
    assert play(speculator, 1, right=99)[0] > 5
    proposer.offers = 0
    assert play(speculator, 1, right=0) == [0]


def test_a_guess_under_way_is_waited_for_with_the_number_first_asked_for() -> None:
    proposer = Scripted(pending=True)
    speculator = begin(proposer, ONE, TWO)
    play(speculator, 1, right=0)
    assert speculator.drafts_for(ONE, [1, 2], 100) is None
    assert speculator.drafts_for(ONE, [1, 2], 100) is None
    proposer.pending = False
    assert speculator.drafts_for(ONE, [1, 2], 100) == [0, 0]
    assert proposer.asked == [2, 2, 2]


def test_company_makes_drafts_dearer() -> None:
    counts = []
    for streams in (1, 8):
        speculator = begin(Scripted(), ONE)
        for _ in range(30):
            drafts = speculator.drafts_for(ONE, [1, 2], 100) or ()
            speculator.judged(ONE, len(drafts), min(2, len(drafts)))
            rows = streams + len(drafts)
            took_s = 0.016 + 0.002 * rows
            speculator.round_took(streams, rows, streams + min(2, len(drafts)), took_s, took_s)
        counts.append(len(speculator.drafts_for(ONE, [1, 2], 100) or ()))
    assert counts[0] > counts[1]


def test_beginning_again_forgets_nothing() -> None:
    proposer = Scripted()
    speculator = begin(proposer, ONE, ONE)
    assert proposer.begun == [ONE]
    speculator.forget(ONE)
    speculator.forget(ONE)
    assert proposer.forgotten == [ONE]
    speculator.judged(ONE, 3, 2)


def test_the_status_counts_drafts_and_tokens_of_a_round() -> None:
    speculator = begin(Scripted(), ONE)
    assert speculator.status().reason == "No answer was generated yet."
    assert speculator.status().tokens_per_round == 0
    play(speculator, 300, right=2)
    status = speculator.status()
    assert status.source == "scripted"
    assert status.reason == ""
    assert status.drafts_per_round == pytest.approx(status.tokens_per_round - 1 + 1, abs=1.5)
    assert 2.5 < status.tokens_per_round <= 3
    assert 0.5 < status.acceptance <= 1


def test_the_status_says_why_nothing_is_guessed() -> None:
    proposer = Scripted()
    speculator = begin(proposer, ONE)
    play(speculator, 200, right=0)
    assert speculator.status().reason.startswith("Drafts do not pay:")
    proposer.draft_s = 0.25
    play(speculator, 1, right=0)
    assert speculator.status().reason.endswith("of them are right and one takes 250 ms to make.")
    proposer.offers = None
    play(speculator, 200, right=0)
    assert speculator.status().reason == "No guess was at hand."
    proposer.problem = "The draft model is out: it was ended by signal 9."
    assert speculator.status().reason == proposer.problem


def test_looking_up_guesses_from_the_streams_own_tokens() -> None:
    speculator = Speculator(LookupProposer())
    prompt = [1, 2, 3, 4, 5, 6, 7, 8]
    speculator.begin(ONE, prompt, Sampling())
    speculator.round_took(1, 1, 1, 0.016, 0.016)
    assert speculator.drafts_for(ONE, [*prompt, 9], 8) == ()
    assert speculator.drafts_for(ONE, [*prompt, 9, 2, 3], 8) == [4, 5]
    speculator.judged(ONE, 2, 2)
    speculator.round_took(1, 3, 3, 0.018, 0.018)
    assert list(speculator.drafts_for(ONE, [*prompt, 9, 2, 3, 4, 5, 6], 8) or ())[:2] == [7, 8]
    speculator.forget(ONE)
