"""What one agent is asked to do with layers, and what it answers: load a stage, go on, fetch. Event loop only."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from agent.link.messages import FetchLayers, LayerRange
from agent.link.stage_messages import AdvanceEpoch, LoadStage, UnloadStage
from agent.stage.types import StageReport
from console.fleet.errors import DeliveryFailed, StageLoadFailed
from console.fleet.session import OnProgress, Session
from console.fleet.sessions import Sessions

DELIVERY_S = 12 * 3600.0
"""A model, over night, to a PC that is far away."""
ADVANCE_S = 3.0
"""A stage that lives answers between two inferences; one that does not is better loaded elsewhere."""
LOAD_STALL_S = 330.0
"""Longer than an agent waits for its child, so that the agent's own sentence arrives first."""

Sign = Callable[[str], bytes]
"""Gives the console's word for a library's digest."""


class Orders:
    """Gives orders to agents that have joined. `direct` says whether stages may be linked directly."""

    def __init__(self, sessions: Sessions, sign: Sign, *, direct: bool) -> None:
        self._sessions = sessions
        self._sign = sign
        self._direct = direct

    async def load(
        self,
        device_id: str,
        request: LoadStage,
        on_progress: OnProgress | None = None,
        stall_s: float = LOAD_STALL_S,
    ) -> StageReport:
        """Let an agent fetch and load a stage; return once it passed its own probe.

        Raises StageLoadFailed. `stall_s` bounds the time without any progress, not the whole load. Cancelling (or
        stalling) tells the agent to unload.
        """
        session = self._joined(device_id)
        request = msgspec.structs.replace(request, direct=self._direct)
        request = msgspec.structs.replace(request, signature=self._sign(request.library_digest))
        report = await self._ask(session, request, on_progress, stall_s)
        _check_report(request, report, session.name)
        return report

    async def advance(self, device_id: str, order: AdvanceEpoch, wait_s: float = ADVANCE_S) -> StageReport:
        """Let a loaded stage go on in another epoch, with nothing cached; its route must be set. As `load` otherwise.

        The answer comes from the stage's own process, so it also proves that this one lives.
        """
        session = self._joined(device_id)
        report = await self._ask(session, order, None, wait_s)
        uplink = session.uplinks.get(order.pipeline)
        if uplink is not None:
            uplink.advance(order.epoch, order.stage)
        return report

    async def deliver(self, device_id: str, layers: LayerRange, timeout_s: float = DELIVERY_S) -> None:
        """Let a PC fetch layers into its store. Raises DeliveryFailed."""
        session = self._sessions.find(device_id)
        if session is None or session.data is None:
            raise DeliveryFailed(f"{device_id} is not connected; switch it on and deliver again.", left=True)
        done = session.begin_delivery(layers)
        self._sessions.say(session, FetchLayers(layers, self._sign(layers.library_digest)))
        try:
            async with asyncio.timeout(timeout_s):
                problem = await asyncio.shield(done)
        except TimeoutError:
            problem = "it did not have everything in time."
        if problem:
            raise DeliveryFailed(f"{session.name}: {problem}", left=session.lost)

    def _joined(self, device_id: str) -> Session:
        session = self._sessions.find(device_id)
        if session is None or session.data is None:
            raise StageLoadFailed("gone", "it is not connected; switch it on or plan without it.", device_id)
        return session

    async def _ask(
        self, session: Session, request: LoadStage | AdvanceEpoch, on_progress: OnProgress | None, stall_s: float
    ) -> StageReport:
        now = asyncio.get_running_loop().time
        load = session.begin_load(request, on_progress, now())
        self._sessions.say(session, request)
        try:
            while True:
                try:
                    async with asyncio.timeout_at(load.moved_s + stall_s):
                        return await asyncio.shield(load.done)
                except TimeoutError:
                    if now() - load.moved_s >= stall_s:
                        raise StageLoadFailed(
                            "stalled", f"it made no progress for {stall_s:.0f} s; look at its log.", session.name
                        ) from None
        finally:
            if session.loads.get(request.pipeline) is load:
                del session.loads[request.pipeline]
                self._sessions.say(session, UnloadStage(request.pipeline))


def _check_report(request: LoadStage, report: StageReport, name: str) -> None:
    # Not the engine: where the one asked for cannot run these layers another stands in, and the report says why.
    asked = (request.library_digest, request.first, request.last, request.numerics)
    got = (report.library_digest, report.first, report.last, report.numerics)
    if asked != got:
        raise StageLoadFailed("mismatch", "it loaded something else than the plan asked for; update its agent.", name)
