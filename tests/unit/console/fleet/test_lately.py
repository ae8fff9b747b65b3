"""console.fleet.lately: samples that grow old, and logs that are asked for over a real link."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent.link.messages import Heartbeat, LogLines, SendLog
from console.fleet.errors import LogNotSent
from console.fleet.lately import KEPT, KEPT_S, LOG_LINES, Sample, Samples
from tests.support.agents import running_agent
from tests.support.fleet import Fleet, join, running_fleet
from tests.support.patience import PATIENCE_S, until


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    async with running_fleet(tmp_path, heartbeat_s=PATIENCE_S) as fleet:
        yield fleet


def sample(at_s: float) -> Sample:
    return Sample(at_s, 1, 0.5, held=False)


def test_samples_are_kept_for_an_hour_and_then_nothing_of_the_pc() -> None:
    samples = Samples()
    for at_s in range(KEPT + 10):
        samples.take("ann", sample(at_s))
    samples.take("bob", sample(50.0))
    assert len(samples.of("ann")) == KEPT
    samples.forget(KEPT_S + 60.0)
    assert [one.at_s for one in samples.of("ann")] == list(range(60, KEPT + 10))
    assert samples.of("bob") == samples.of("nobody") == []
    samples.forget(2 * KEPT_S)
    assert samples.of("ann") == []
    assert not samples._samples


async def test_who_has_said_how_it_is_is_sampled(fleet: Fleet) -> None:
    ann, _ = [await join(fleet, fleet.enrol(name)) for name in ("ann", "bob")]
    await ann.say(Heartbeat(7, "held", ["locked"]))
    await fleet.wait_for(lambda: any(view.heartbeat is not None for view in fleet.hub.agents()))
    fleet.hub.lately.look(100.0)
    (seen,) = fleet.hub.lately.of(ann.device_id)
    assert (seen.at_s, seen.memory_free_bytes, seen.held) == (100.0, 7, True)
    assert len(fleet.hub.lately._samples._samples) == 1


async def test_two_who_ask_for_a_log_get_one_answer(fleet: Fleet) -> None:
    ann = await join(fleet, fleet.enrol("ann"), tells_log=True)
    asked = [asyncio.create_task(fleet.hub.lately.log_of(ann.device_id)) for _ in range(2)]
    assert await ann.hear() == SendLog(LOG_LINES)
    await ann.say(LogLines(["one", "two"]))
    assert await asyncio.gather(*asked) == [["one", "two"]] * 2
    await ann.say(LogLines(["nobody asked"]))
    await ann.say(Heartbeat(7))
    await until(lambda: fleet.hub.agents()[0].heartbeat is not None)


async def test_a_log_that_cannot_be_had_says_why(fleet: Fleet) -> None:
    with pytest.raises(LogNotSent, match="not connected here"):
        await fleet.hub.lately.log_of("nobody")
    older = await join(fleet, fleet.enrol("old"))
    with pytest.raises(LogNotSent, match="too old to send its log; update it"):
        await fleet.hub.lately.log_of(older.device_id)
    ann = await join(fleet, fleet.enrol("ann"), tells_log=True)
    asked = asyncio.create_task(fleet.hub.lately.log_of(ann.device_id))
    await ann.hear()
    await ann.close()
    with pytest.raises(LogNotSent, match="left before it had sent its log"):
        await asked


async def test_a_pc_that_is_silent_is_not_waited_for_long(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("console.fleet.lately.LOG_WAIT_S", 0.05)
    ann = await join(fleet, fleet.enrol("ann"), tells_log=True)
    with pytest.raises(LogNotSent, match="did not send its log"):
        await fleet.hub.lately.log_of(ann.device_id)


async def test_a_real_agent_sends_what_it_logged(fleet: Fleet) -> None:
    async with running_agent(fleet) as agent:
        agent.service._log_tail._lines.append("It did this.")
        assert (await fleet.hub.lately.log_of(agent.device_id))[-1] == "It did this."
