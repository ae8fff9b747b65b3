"""The reception of the agents' port: who comes in on which path, and what they say there. Event loop only.

Every link but `/enrol` is let in by certificate and registry look-up, on each accept; until then nothing it says is
looked at. What is said on it only ever concerns the device that says it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from http import HTTPStatus

import msgspec
from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.protocol import State

from agent.link.bulk import Find, serve_files
from agent.link.closing import CloseCode, close_reason
from agent.link.frames import FrameError
from agent.link.identity import DeviceId
from agent.link.messages import (
    BULK_PATH,
    CONTROL_PATH,
    DATA_PATH,
    ENROL_PATH,
    OLDEST_PROTOCOL,
    PROTOCOL,
    AskRelease,
    Goodbye,
    Heartbeat,
    Hello,
    Holding,
    LayersFetched,
    LogLines,
    MarkKept,
    Measurements,
    MessageError,
    PolicyKept,
    Resting,
    UpdateState,
    Welcome,
    Yield,
    decode_from_agent,
    encode_message,
)
from agent.link.sockets import Unsendable, post, tune
from agent.link.stage_messages import DirectState, StageFailed, StageReady
from agent.logs.about import about
from console.fleet.clones import CloneWatch
from console.fleet.direct import DirectLinks
from console.fleet.doorkeeper import Doorkeeper
from console.fleet.events import AgentAvailable, AgentLeaving, AgentTold, AgentYielded, StageDied
from console.fleet.peers import Peers
from console.fleet.relay import Relay
from console.fleet.session import Session
from console.fleet.sessions import Sessions
from console.registry.access import peer_certificate
from console.registry.errors import NotAuthorised
from console.registry.records import DeviceRecord
from console.visible import visible

log = logging.getLogger(__name__)

HELLO_WAIT_S = 10.0
PATHS = (ENROL_PATH, CONTROL_PATH, DATA_PATH, BULK_PATH)

Handler = Callable[[ServerConnection], Awaitable[None]]


class Reception:
    """Serves every accepted websocket until it ends. Arguments as the hub's."""

    def __init__(
        self,
        doorkeeper: Doorkeeper,
        enrol: Handler,
        files: Find,
        clones: CloneWatch | None,
        *,
        sessions: Sessions,
        relay: Relay,
        direct: DirectLinks,
        peers: Peers,
        heartbeat_s: float,
        hands_over: bool,
    ) -> None:
        self._doorkeeper = doorkeeper
        self._enrol = enrol
        self._files = files
        self._clones = clones
        self._sessions = sessions
        self._relay = relay
        self._direct = direct
        self._peers = peers
        self._heartbeat_s = heartbeat_s
        self._hands_over = hands_over
        self._links: defaultdict[str, set[ServerConnection]] = defaultdict(set)
        """Every link that is let in, by device, from the first moment: also one that has said nothing yet."""
        self.bulk_bytes = 0
        """Of model files, on all bulk links so far."""

    async def handle(self, link: ServerConnection) -> None:
        """Serve one link until it ends; the edge of its task."""
        with contextlib.ExitStack() as saying:
            await self._handle(link, saying)

    async def _handle(self, link: ServerConnection, saying: contextlib.ExitStack) -> None:
        path = link.request.path if link.request is not None else ""
        try:
            if path == ENROL_PATH:
                await self._enrol(link)
                return
            record = await self._doorkeeper.let_in(peer_certificate(link))
            saying.enter_context(about(device=record.device_id))
            with self._listed(record.device_id, link):
                if path == CONTROL_PATH:
                    await self._serve_control(link, record)
                elif path == DATA_PATH:
                    await self._serve_data(link, record)
                elif path == BULK_PATH:
                    await self._serve_bulk(link, record)
        except NotAuthorised as error:
            await self._refuse(link, error)
        except (FrameError, MessageError) as error:
            log.warning("Closed %s of %s with 4400: %s", path, link.remote_address, error)
            await link.close(CloseCode.BAD_FRAME, close_reason("bad_frame", str(error)))
        except TimeoutError:
            await link.close(CloseCode.STALLED, close_reason("silent", "Nothing was said in time."))
        except ConnectionClosed:
            pass
        except Exception:
            log.exception("Serving %s failed.", path)
            await link.close(1011, "")

    def disconnect(self, device_id: str, close_code: CloseCode, code: str, message: str) -> None:
        """Close every link of a device at once (revoked: NOT_APPROVED, `revoked`). Also right if it has none."""
        self._doorkeeper.put_out(device_id)
        session = self._sessions.find(device_id)
        if session is not None:
            self._sessions.lose(session, message, close_code, code)
        for link in self._links.pop(device_id, ()):
            self._sessions.close(link, close_code, close_reason(code, message))

    async def _refuse(self, link: ServerConnection, error: NotAuthorised) -> None:
        # Two PCs with one identity: the one that was here first goes, too.
        if error.device_id:
            self.disconnect(error.device_id, CloseCode(error.close_code), error.code, str(error))
        await link.close(error.close_code, close_reason(error.code, str(error)))

    @contextlib.contextmanager
    def _listed(self, device_id: str, link: ServerConnection) -> Iterator[None]:
        self._links[device_id].add(link)
        try:
            yield
        finally:
            links = self._links.get(device_id, set())
            links.discard(link)
            if not links:
                self._links.pop(device_id, None)

    def linked(self) -> list[str]:
        """List the devices that have any link."""
        return list(self._links)

    async def _serve_control(self, link: ServerConnection, record: DeviceRecord) -> None:
        async with asyncio.timeout(HELLO_WAIT_S):
            hello = decode_from_agent(await link.recv(decode=False))
        if not isinstance(hello, Hello):
            raise MessageError("The first message on a control link must be Hello.")
        if not OLDEST_PROTOCOL <= hello.protocol <= PROTOCOL:
            older = "agent" if hello.protocol < PROTOCOL else "console"
            sentence = f"The console speaks protocol {PROTOCOL}, the agent {hello.protocol}; update the {older}."
            await link.close(CloseCode.UPGRADE, close_reason("protocol", sentence))
            return
        mark = ""
        if self._clones is not None:
            mark = await self._clones.admit(record.device_id, hello.mark, self._sessions.control_link, _source(link))
        if link.state is not State.OPEN or link not in self._links.get(record.device_id, ()):
            # Gone or put out meanwhile: there is to be no session, and none of an older link has to make room.
            await link.wait_closed()
            return
        loop = asyncio.get_running_loop()
        # The names of thousands of files are not kept with every session: the index of peers has them.
        introduction = msgspec.structs.replace(
            hello,
            held_sha256=[],
            host=visible(hello.host),
            os=visible(hello.os),
            version=visible(hello.version),
            openvino=visible(hello.openvino),
        )
        session = Session(record, link, introduction, time.time(), loop.time())
        self._sessions.add(session)
        self._peers.joined(session.device_id, _source(link), hello.held_sha256)
        try:
            post(link, encode_message(self._welcome(session, mark)))
            # A device that was revoked says nothing more that counts, though its link takes a moment to close.
            while not session.lost:
                data = await link.recv(decode=False)
                if not session.lost:
                    self._take_message(session, data, loop.time())
        except Unsendable:
            self._sessions.lose(session, "its control link was cut", CloseCode.STALLED, "cut")
        except (ConnectionClosed, MessageError) as error:
            self._sessions.lose_by(session, error, "control")
            raise
        finally:
            self._sessions.lose(session, "the console stopped serving it", CloseCode.STALLED, "error")
            if self._sessions.find(session.device_id) is None:
                self._peers.left(session.device_id)
        await link.wait_closed()

    async def _serve_data(self, link: ServerConnection, record: DeviceRecord) -> None:
        session = self._sessions.find(record.device_id)
        if session is None:
            # Not a refusal: the control link may just have dropped, and the agent should dial again soon.
            await link.close(CloseCode.STALLED, close_reason("control_first", "The control link is gone."))
            return
        self._sessions.attach_data(session, link)
        take, receive, device_id = self._relay.take, link.recv, session.device_id
        try:
            while session.data is link:
                data = await receive(decode=False)
                if session.data is link:
                    take(device_id, data)
        except (ConnectionClosed, FrameError) as error:
            if session.data is link:
                self._sessions.lose_by(session, error, "data")
            raise
        finally:
            if session.data is link:
                self._sessions.lose(session, "the console stopped serving it", CloseCode.STALLED, "error")
        await link.wait_closed()

    async def _serve_bulk(self, link: ServerConnection, record: DeviceRecord) -> None:
        await serve_files(
            link,
            self._files,
            on_other=lambda frame: self._peers.answer(record.device_id, frame),
            before_sending=self._count_bulk,
        )

    async def _count_bulk(self, size_bytes: int) -> None:
        self.bulk_bytes += size_bytes

    def _welcome(self, session: Session, mark: str) -> Welcome:
        return Welcome(
            session.device_id, time.time(), self._heartbeat_s, mark, self._direct.public_key, self._hands_over,
            offers_releases=True,
        )  # fmt: skip

    def _take_message(self, session: Session, data: bytes, now_s: float) -> None:
        message = decode_from_agent(data)
        session.seen_s = now_s
        if isinstance(message, Heartbeat | Yield):
            self._take_state(session, message)
        elif isinstance(message, Goodbye):
            self._sessions.lose(session, message.message.rstrip("."), CloseCode.GOING_AWAY, message.code)
        elif isinstance(message, Hello):
            raise MessageError("Hello is only the first message.")
        elif isinstance(message, PolicyKept | Resting | Measurements | AskRelease | UpdateState):
            self._sessions.emit(AgentTold(session.device_id, message))
        elif isinstance(message, LogLines):
            session.end_log(message.lines)
        elif isinstance(message, MarkKept | Holding | LayersFetched | DirectState):
            self._take_note(session.device_id, message)
        elif session.take_answer(message, now_s):
            if isinstance(message, StageReady):
                self._direct.ready(session.device_id, message, _source(session.control))
        elif isinstance(message, StageFailed):
            self._sessions.emit(
                StageDied(session.device_id, message.pipeline, message.epoch, message.stage, message.message)
            )

    def _take_state(self, session: Session, message: Heartbeat | Yield) -> None:
        was_held = session.is_held
        if isinstance(message, Heartbeat):
            session.heartbeat = message
            if was_held and not session.is_held:
                self._sessions.emit(AgentAvailable(session.device_id))
            elif session.is_held and not was_held:
                self._sessions.emit(AgentLeaving(session.device_id))
            return
        session.take_yield(message)
        log.info("%s (%s) yields: %s.", session.name, session.device_id, ", ".join(message.reasons))
        self._sessions.emit(AgentYielded(session.device_id, message.epochs, message.reasons))

    def _take_note(self, device_id: str, message: MarkKept | Holding | LayersFetched | DirectState) -> None:
        if isinstance(message, LayersFetched):
            session = self._sessions.find(device_id)
            if session is not None:
                session.end_delivery(message.layers, message.problem)
        elif isinstance(message, Holding):
            self._peers.changed(device_id, message)
        elif isinstance(message, DirectState):
            self._direct.state(device_id, message)
        elif self._clones is not None:
            self._clones.confirm(DeviceId(device_id), message.mark)


def check_path(link: ServerConnection, request: Request) -> Response | None:
    """Refuse what is no path of ours before the handshake, and set limits per path."""
    if request.path not in PATHS:
        return link.respond(HTTPStatus.NOT_FOUND, "There is nothing here.\n")
    tune(link, request.path)
    return None


def _source(link: ServerConnection) -> str:
    address = link.remote_address
    return str(address[0]) if isinstance(address, tuple) and address else ""
