"""When everything is looked at, and that garbage is found in the end."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.garbage import ANEW_S, RESTED_S, CollectionPlan, keep_collections_short, look_at_all


class Service:
    def __init__(self) -> None:
        self.pipelines = 0
        self.is_resting = True

    def pipelines_up(self) -> int:
        return self.pipelines


class Knot:
    """Only the collector can free one: it holds itself."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture
def thawed() -> Iterator[None]:
    yield
    gc.unfreeze()


def test_a_new_pipeline_is_set_aside_at_once_and_looked_at_when_nobody_waits() -> None:
    plan = CollectionPlan(0.0, "none")
    assert plan.due(1.0, "one", resting=False) == "set_aside"
    assert plan.due(2.0, "one", resting=False) == "nothing"
    assert plan.due(2.0 + RESTED_S - 0.1, "one", resting=True) == "nothing"
    assert plan.due(2.0 + RESTED_S, "one", resting=True) == "look_at_all"
    assert plan.due(3.0 + RESTED_S, "one", resting=True) == "nothing"


def test_a_console_that_rests_looks_at_everything_from_time_to_time() -> None:
    plan = CollectionPlan(0.0, "one")
    looked = [at for at in range(3 * int(ANEW_S)) if plan.due(float(at), "one", resting=True) == "look_at_all"]
    assert looked == [ANEW_S, 2 * ANEW_S]


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 2))))
def test_nothing_long_is_done_while_somebody_waits_or_has_just_waited(seconds: list[tuple[bool, int]]) -> None:
    plan = CollectionPlan(0.0, 0)
    waited_s = 0.0
    for at, (resting, pipelines) in enumerate(seconds, start=1):
        waited_s = waited_s if resting else float(at)
        if plan.due(float(at), pipelines, resting=resting) == "look_at_all":
            assert at - waited_s >= RESTED_S


@pytest.mark.usefixtures("thawed")
def test_what_is_there_is_not_looked_at_again_and_still_freed() -> None:
    knot = Knot()
    gone = weakref.ref(knot)
    look_at_all()
    assert id(knot) not in {id(one) for one in gc.get_objects()}
    del knot
    gc.collect()
    assert gone() is not None, "it was set aside"
    look_at_all()
    assert gone() is None


@pytest.mark.usefixtures("thawed")
async def test_a_pipeline_that_comes_up_is_set_aside_while_answers_run() -> None:
    service, stopping = Service(), asyncio.Event()
    service.is_resting = False
    task = asyncio.create_task(keep_collections_short(service, stopping, look_s=0.01))
    await asyncio.sleep(0)
    pipeline = Knot()
    assert _is_looked_at(pipeline)
    service.pipelines = 1
    async with asyncio.timeout(5):
        while _is_looked_at(pipeline):
            await asyncio.sleep(0.01)
    stopping.set()
    await task


def _is_looked_at(one: object) -> bool:
    return any(other is one for other in gc.get_objects())
