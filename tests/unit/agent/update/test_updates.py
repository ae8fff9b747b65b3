"""agent.update.updates: what the running agent does with what the console offers; a worker that the test plays."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from agent.link.messages import AskRelease, OfferRelease, UpdateState
from agent.update.errors import ArchiveRefused, ReleaseRefused, UpdateError
from agent.update.keeping import read_progress, write_progress
from agent.update.layout import Installation
from agent.update.permission import Means
from agent.update.progress import Progress, moved, taken
from agent.update.proof import Trial
from agent.update.releases import Release
from agent.update.updates import FetchProblem, Updates
from agent.update.worker import Answer, Judge, Judged, Prepared, Request
from tests.support.patience import until
from tests.support.releases import HERE, ROOT, describe, make_installation

NOW_S = 1e9


@dataclass
class Pc:
    """What an update sees of the PC and the console, and what it did to them."""

    allows_updates: bool = True
    is_away: bool = True
    is_serving: bool = False
    pays: bool = False
    release: Release = field(default_factory=lambda: Release(describe(), "a", 1000, "ab" * 32, 10, NOW_S + 1e6))
    fails: Exception | None = None
    fetch_fails: str = ""
    restarts: int = 0
    asked: list[str] = field(default_factory=list)
    said: list[Any] = field(default_factory=list)

    def restart(self) -> None:
        self.restarts += 1

    async def ask(self, request: Request) -> Answer:
        self.asked.append(type(request).__name__)
        if self.fails is not None:
            raise self.fails
        return Judged(self.release) if isinstance(request, Judge) else Prepared()

    async def fetch(self, sha256: str, size_bytes: int) -> Path:
        self.asked.append("fetch")
        if self.fetch_fails:
            raise FetchProblem(self.fetch_fails)
        return Path("archive")

    def phases(self) -> list[str]:
        return [said.phase for said in self.said if isinstance(said, UpdateState)]


@pytest.fixture
def pc() -> Pc:
    return Pc()


def make_updates(folder: Path, pc: Pc, **changes: Any) -> Updates:
    means = changes.pop("means", None) or Means(make_installation(folder), ROOT)
    return Updates(means, HERE, pc, ask=pc.ask, clock=lambda: NOW_S, **changes)


@contextlib.asynccontextmanager
async def running(updates: Updates, pc: Pc) -> AsyncIterator[None]:
    task = asyncio.create_task(updates.run(pc.said.append, pc.fetch))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_an_offer_goes_all_the_way_to_a_restart(tmp_path: Path, pc: Pc) -> None:
    updates = make_updates(tmp_path, pc)
    async with running(updates, pc):
        updates.offered(OfferRelease(b"signed"))
        await until(lambda: pc.restarts == 1)
    assert pc.asked == ["Judge", "fetch", "fetch", "Prepare"]
    assert pc.phases() == ["fetching", "preparing", "ready", "wanted"]
    assert read_progress(Installation(tmp_path, "fallow-agent")).phase == "wanted"


async def test_nothing_is_unpacked_before_the_owner_leaves(tmp_path: Path, pc: Pc) -> None:
    pc.is_away = False
    updates = make_updates(tmp_path, pc)
    async with running(updates, pc):
        updates.offered(OfferRelease(b"signed"))
        await until(lambda: "preparing" in pc.phases())
        assert "Prepare" not in pc.asked
        pc.is_away = True
        updates.look_again()
        await until(lambda: pc.restarts == 1)


async def test_nothing_is_fetched_at_the_owners_expense_unless_they_want_it_now(tmp_path: Path, pc: Pc) -> None:
    pc.pays = True
    updates = make_updates(tmp_path, pc)
    async with running(updates, pc):
        updates.offered(OfferRelease(b"signed"))
        await until(lambda: "fetching" in pc.phases())
        updates.look_again()
        assert "fetch" not in pc.asked
        asking = asyncio.create_task(updates.check(now=True))
        await until(lambda: pc.restarts == 1)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)


async def test_somebody_at_the_pc_may_have_it_now(tmp_path: Path, pc: Pc) -> None:
    pc.is_away, pc.is_serving = False, True
    updates = make_updates(tmp_path, pc)
    async with running(updates, pc):
        asking = asyncio.create_task(updates.check(now=True))
        await until(lambda: AskRelease() in pc.said)
        updates.offered(OfferRelease(b"signed"))
        assert "1.1.0" in await asking
        await until(lambda: pc.restarts == 1)


async def test_a_check_says_that_there_is_nothing_newer(tmp_path: Path, pc: Pc) -> None:
    updates = make_updates(tmp_path, pc)
    async with running(updates, pc):
        asking = asyncio.create_task(updates.check(now=False))
        await until(lambda: AskRelease() in pc.said)
        updates.offered(OfferRelease())
        assert await asking == "No newer version was offered."


async def test_without_a_session_a_check_says_so(tmp_path: Path, pc: Pc) -> None:
    assert "cannot be reached" in await make_updates(tmp_path, pc).check(now=False)


@pytest.mark.parametrize("policy", [True, False])
async def test_where_it_is_off_nothing_is_taken_and_why_is_told(tmp_path: Path, pc: Pc, policy: bool) -> None:
    pc.allows_updates = not policy
    means = None if policy else Means(None, why_off="Self-update is off: this agent was installed by deb.")
    updates = make_updates(tmp_path, pc, means=means)
    async with running(updates, pc):
        updates.offered(OfferRelease(b"signed"))
        await until(lambda: bool(pc.phases()))
    assert pc.asked == []
    assert [said.phase for said in pc.said] == ["off"]
    assert pc.said[0].problem.startswith("Self-update is off: ")
    assert await updates.check(now=True) == pc.said[0].problem


@pytest.mark.expected_logs("agent.update.updates", "not taken")
async def test_a_release_that_is_refused_changes_nothing(tmp_path: Path, pc: Pc) -> None:
    pc.fails = ReleaseRefused("Nobody vouches for it.", "signature")
    updates = make_updates(tmp_path, pc)
    async with running(updates, pc):
        updates.offered(OfferRelease(b"signed"))
        await until(lambda: "refused" in pc.phases())
    assert pc.said[-1] == UpdateState("refused", "", "Nobody vouches for it.")
    assert updates.progress == Progress()


@pytest.mark.expected_logs("agent.update.updates", "did not work on this PC before")
async def test_a_version_that_failed_here_is_not_taken_again(tmp_path: Path, pc: Pc) -> None:
    means = Means(make_installation(tmp_path), ROOT)
    assert means.installation is not None
    write_progress(means.installation, Progress("failed", "1.1.0", bad={"1.1.0": "It crashed."}))
    updates = make_updates(tmp_path, pc, means=means)
    async with running(updates, pc):
        updates.offered(OfferRelease(b"signed"))
        await until(lambda: "refused" in pc.phases())
    assert "It crashed." in updates.sentence


@pytest.mark.parametrize(
    ("error", "phase"), [(ArchiveRefused("It is torn."), "failed"), (UpdateError("The disk is full."), "preparing")]
)
async def test_what_is_wrong_with_the_release_ends_it_and_what_is_wrong_here_waits(
    tmp_path: Path, pc: Pc, error: Exception, phase: str
) -> None:
    pc.is_away = False
    updates = make_updates(tmp_path, pc)
    async with running(updates, pc):
        updates.offered(OfferRelease(b"signed"))
        await until(lambda: updates.progress.phase == "preparing")
        pc.fails, pc.is_away = error, True
        updates.look_again()
        await until(lambda: updates.progress.problem != "")
    assert (updates.progress.phase, updates.progress.problem) == (phase, str(error))
    assert (updates.progress.bad == {}) is (phase == "preparing")


async def test_a_fetch_that_was_cut_waits_for_its_next_time(tmp_path: Path, pc: Pc) -> None:
    pc.fetch_fails = "The link keeps breaking."
    updates = make_updates(tmp_path, pc)
    async with running(updates, pc):
        updates.offered(OfferRelease(b"signed"))
        await until(lambda: updates.progress.problem != "")
    assert pc.asked == ["Judge", "fetch"]
    assert updates.progress.phase == "fetching"


async def test_what_is_withdrawn_is_dropped_and_may_come_back(tmp_path: Path, pc: Pc) -> None:
    pc.is_away = False
    updates = make_updates(tmp_path, pc)
    async with running(updates, pc):
        updates.offered(OfferRelease(b"signed"))
        await until(lambda: updates.progress.phase == "preparing")
        updates.offered(OfferRelease())
        await until(lambda: updates.progress.phase == "failed")
        assert updates.progress.bad == {}
        updates.offered(OfferRelease(b"signed"))
        await until(lambda: updates.progress.phase == "preparing")


async def test_what_was_withdrawn_while_the_pc_was_away_is_not_installed(tmp_path: Path, pc: Pc) -> None:
    updates = make_updates(tmp_path, pc)
    async with running(updates, pc):
        pc.is_away = False
        updates.offered(OfferRelease(b"signed"))
        await until(lambda: updates.progress.phase == "preparing")
    pc.is_away = True
    async with running(updates, pc):
        await until(lambda: len(pc.said) == 3)  # how far it is, to the console of this session
        assert pc.asked == ["Judge", "fetch"]
        updates.offered(OfferRelease(b"signed"))
        await until(lambda: pc.restarts == 1)


async def test_on_trial_it_proves_itself_and_waits_for_whoever_keeps_it(tmp_path: Path, pc: Pc) -> None:
    means = Means(make_installation(tmp_path), ROOT)
    assert means.installation is not None
    trying = moved(taken(Progress(), pc.release, "1.0.0", NOW_S), "trying", NOW_S)
    write_progress(means.installation, trying)
    proof = tmp_path / "update" / "proof-1"
    updates = make_updates(tmp_path, pc, means=means, trial=Trial(proof))
    async with running(updates, pc):
        await until(proof.exists)
        assert proof.read_text() == HERE.version
        write_progress(means.installation, moved(trying, "done", NOW_S))
        await until(lambda: "done" in pc.phases())
    assert pc.asked == []
