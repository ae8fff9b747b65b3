"""Deliveries make way for what their owner would feel, go on where they were, and say why they could not."""

from __future__ import annotations

import asyncio

import pytest

from agent.delivering import deliver_gently
from tests.support.patience import until


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.delivering.LOOK_S", 0.01)


class Pc:
    """A PC that is to be spared for a while, and a delivery that ends when it is told to."""

    def __init__(self) -> None:
        self.spares = ""
        self.begun = self.ended = 0
        self.problem = asyncio.get_running_loop().create_future()

    async def deliver(self) -> str:
        self.begun += 1
        try:
            return str(await asyncio.shield(self.problem))
        finally:
            self.ended += 1

    def spared(self) -> str:
        return self.spares


@pytest.mark.parametrize("problem", ["", "The disk is full; free some space."])
async def test_what_becomes_of_it_is_told(problem: str) -> None:
    pc = Pc()
    pc.problem.set_result(problem)
    assert await deliver_gently(pc.deliver, pc.spared) == problem
    assert (pc.begun, pc.ended) == (1, 1)


async def test_it_ends_at_once_and_goes_on_later() -> None:
    pc = Pc()
    delivering = asyncio.create_task(deliver_gently(pc.deliver, pc.spared))
    await until(lambda: pc.begun == 1)
    pc.spares = "metered_net"
    await until(lambda: pc.ended == 1)
    pc.spares = ""
    await until(lambda: pc.begun == 2)
    pc.problem.set_result("")
    assert await delivering == ""


async def test_who_waits_too_long_hears_why() -> None:
    pc = Pc()
    pc.spares = "on_battery"
    problem = await deliver_gently(pc.deliver, pc.spared, patience_s=0.05)
    assert problem == "nothing is transferred there now (on_battery); deliver again later."
    assert pc.begun == 0


async def test_who_need_not_be_spared_any_more_in_the_last_moment_gets_it() -> None:
    pc = Pc()
    pc.problem.set_result("")
    reasons = iter(["on_battery", ""])
    assert await deliver_gently(pc.deliver, lambda: next(reasons, ""), patience_s=0.01) == ""
    assert pc.begun == 1


async def test_a_session_that_ends_ends_it() -> None:
    pc = Pc()
    delivering = asyncio.create_task(deliver_gently(pc.deliver, pc.spared))
    await until(lambda: pc.begun == 1)
    delivering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await delivering
    assert pc.ended == 1
