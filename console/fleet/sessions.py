"""The table of live sessions: who is connected, who is lost and why, and who is told. Event loop only."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator

from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed

from agent.link.channel import link_error
from agent.link.closing import CloseCode, close_reason
from agent.link.frames import FrameError
from agent.link.messages import FromConsole, MessageError, encode_message
from agent.link.sockets import OPEN_TIMEOUT_S, Unsendable, post
from console.fleet.events import AgentJoined, AgentLost, FleetEvent
from console.fleet.session import Session
from console.fleet.uplinks import Uplink

log = logging.getLogger(__name__)

LOOK_S = 0.25
JOIN_S = OPEN_TIMEOUT_S + 5.0
"""How long an agent may take between its two links: longer than it waits itself."""
CUT_S = 0.5
"""How long a device that is not let in any more may take to say goodbye, too; then its connection is cut."""

Listener = Callable[[FleetEvent], None]


class Sessions:
    """Sessions by device id. A session that is lost leaves the table before anybody hears of it."""

    def __init__(self, heartbeat_s: float) -> None:
        self._heartbeat_s = heartbeat_s
        self._sessions: dict[str, Session] = {}
        self._listeners: list[Listener] = []
        self._closing: set[asyncio.Task[None]] = set()

    def __iter__(self) -> Iterator[Session]:
        return iter(list(self._sessions.values()))

    def find(self, device_id: str) -> Session | None:
        """Return a device's session, joined or not yet."""
        return self._sessions.get(device_id)

    def has_loaded(self, device_id: str, pipeline: int) -> bool:
        """Whether a device is here and loads nothing for a pipeline any more."""
        session = self._sessions.get(device_id)
        return session is not None and pipeline not in session.loads

    def control_link(self, device_id: str) -> ServerConnection | None:
        """Return a device's control link, None when it has none."""
        session = self._sessions.get(device_id)
        return None if session is None else session.control

    def data_link(self, device_id: str) -> ServerConnection | None:
        """Return a device's data link, None when it has none."""
        session = self._sessions.get(device_id)
        return None if session is None else session.data

    def uplink(self, device_id: str, pipeline: int) -> Uplink | None:
        """Return the own link of the stage a device holds of a pipeline, None when it has none."""
        session = self._sessions.get(device_id)
        return None if session is None else session.uplinks.get(pipeline)

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` with every event from now on; the result ends that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def emit(self, event: FleetEvent) -> None:
        """Tell every listener; one that fails is logged and does not keep the others from hearing."""
        for listener in list(self._listeners):
            try:
                listener(event)
            except Exception:
                log.exception("A listener failed on %s.", type(event).__name__)

    def add(self, session: Session) -> None:
        """Take in an authenticated control link; an older session of the same device makes room."""
        older = self._sessions.get(session.device_id)
        if older is not None:
            reason = "another agent connected with this PC's identity; stop one of them or enrol it anew"
            self.lose(older, reason, CloseCode.DUPLICATE, "duplicate")
        self._sessions[session.device_id] = session

    def attach_data(self, session: Session, link: ServerConnection) -> None:
        """Complete a session with its data link; the newest wins."""
        if session.data is not None:
            self.close(session.data, CloseCode.DUPLICATE, close_reason("duplicate", "A newer data link took over."))
            self.emit(AgentLost(session.device_id, "its data link was replaced"))
        session.data = link
        session.seen_s = asyncio.get_running_loop().time()
        self.emit(AgentJoined(session.view()))

    def lose(self, session: Session, reason: str, close_code: CloseCode, code: str) -> None:
        """End a session: listeners hear of it before this returns, its links close behind it."""
        if session.lost:
            return
        reason = reason.rstrip(".")
        session.lost = True
        if self._sessions.get(session.device_id) is session:
            del self._sessions[session.device_id]
        data, session.data = session.data, None
        text = close_reason(code, f"{reason[:1].upper()}{reason[1:]}".rstrip(".") + ".")
        for link in (session.control, data):
            if link is not None:
                self.close(link, close_code, text)
        for uplink in session.uplinks.values():
            uplink.close()
        session.uplinks.clear()
        session.fail_all_loads("gone", f"{reason}.")
        if data is not None:
            log.info("Lost agent %s (%s): %s.", session.name, session.device_id, reason)
            self.emit(AgentLost(session.device_id, reason))

    def lose_by(self, session: Session, error: ConnectionClosed | FrameError | MessageError, link: str) -> None:
        """End a session because of what its `link` raised."""
        if isinstance(error, ConnectionClosed):
            reason = f"its {link} link dropped ({link_error(error).code or 'cut'})"
            self.lose(session, reason, CloseCode.STALLED, "cut")
        else:
            self.lose(session, f"its {link} link sent what we cannot read", CloseCode.BAD_FRAME, "bad_frame")

    def lose_stalled(self, device_id: str) -> None:
        """End the session of a device that reads too slowly."""
        session = self._sessions.get(device_id)
        if session is not None:
            self.lose(session, "it reads its data link too slowly", CloseCode.STALLED, "slow_reader")

    async def watch(self, is_covered: Callable[[str], bool]) -> None:
        """Look for heartbeats that stopped, until cancelled; `is_covered` says whose stages others have loaded, too."""
        loop = asyncio.get_running_loop()
        pause_s = min(self._heartbeat_s / 2, LOOK_S)
        while True:
            before_s = loop.time()
            await asyncio.sleep(pause_s)
            now_s = loop.time()
            if now_s - before_s > 2 * pause_s:
                # This side was busy: what came meanwhile was not read yet.
                continue
            for session in self:
                # Heartbeats begin when both links are up, and the second may wait in a long queue.
                patience_s = session.patience_s(self._heartbeat_s, covered=is_covered(session.device_id))
                allowed_s = patience_s if session.data is not None else max(patience_s, JOIN_S)
                if session.seen_s < now_s - allowed_s:
                    self.lose(session, "its heartbeats stopped", CloseCode.STALLED, "silent")

    def say(self, session: Session, message: FromConsole) -> None:
        """Send a control message without waiting; one that leaves meanwhile does not get it."""
        try:
            post(session.control, encode_message(message))
        except Unsendable:
            log.debug("Device %s is leaving; %s was not sent.", session.device_id, type(message).__name__)

    def close(self, link: ServerConnection, close_code: CloseCode, reason: str) -> None:
        """Close a link without waiting for the other side."""
        task = asyncio.create_task(_close(link, close_code, reason), name="hub-close")
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def closed(self) -> None:
        """Wait until every link that was told to close is closed."""
        await asyncio.gather(*self._closing, return_exceptions=True)


async def _close(link: ServerConnection, close_code: CloseCode, reason: str) -> None:
    if close_code != CloseCode.NOT_APPROVED:
        await link.close(close_code, reason)
        return
    try:
        async with asyncio.timeout(CUT_S):
            await link.close(close_code, reason)
    except TimeoutError:
        link.transport.abort()
