"""Who may have a stage's own link, and where its frames go. Event loop only."""

from __future__ import annotations

from agent.link.frames import FrameError
from console.fleet.doorkeeper import Doorkeeper
from console.fleet.relay import Relay
from console.fleet.sessions import Sessions
from console.fleet.uplinks import Uplink
from console.registry.errors import NotAuthorised


class UplinkGate:
    """The owner of all uplinks: admits them by certificate, session and route, and relays what they carry."""

    def __init__(self, doorkeeper: Doorkeeper, sessions: Sessions, relay: Relay) -> None:
        self._doorkeeper = doorkeeper
        self._sessions = sessions
        self._relay = relay

    async def admit(self, link: Uplink, certificate_der: bytes | None) -> str:
        """Take a stage's own link and return its device. Raises NotAuthorised: who it is, or it holds no such stage."""
        record = await self._doorkeeper.let_in(certificate_der)
        session, stage = self._sessions.find(record.device_id), link.stage
        if session is None or session.data is None or stage is None:
            raise NotAuthorised(4403, "control_first", "This PC's agent is not connected.")
        if not self._relay.holds(record.device_id, stage.pipeline, stage.epoch, stage.stage):
            raise NotAuthorised(4403, "other_stage", "This PC does not hold that stage.")
        former = session.uplinks.get(stage.pipeline)
        if former is not None:
            former.close()
        session.uplinks[stage.pipeline] = link
        return record.device_id

    def take(self, device_id: str, data: bytes) -> None:
        """Relay a frame of a stage's own link. Raises FrameError."""
        self._relay.take(device_id, data)

    def left(self, link: Uplink, device_id: str, error: FrameError | None) -> None:
        """Forget a stage's own link; its child process ends by itself and its agent says so."""
        session = self._sessions.find(device_id)
        if session is not None and link.stage is not None and session.uplinks.get(link.stage.pipeline) is link:
            del session.uplinks[link.stage.pipeline]
            if error is not None:
                self._sessions.lose_by(session, error, "stage")
