"""Getting in: from a place and what somebody typed to a way to the service that works."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from pathlib import Path

from PySide6.QtCore import QObject, Signal

from agent.look.loop import Job
from agent.threads import finish_in_thread
from console import calls
from console.access import Access, access_of
from console.api.admin import types as wire
from console.errors import ClientError, ServiceUnreachable
from console.gui.bridge import Bridge
from console.gui.kept import KeptTokens
from console.gui.places import Place

ONLY_CHAT = "This sign-in may chat, but not look at the fleet; ask an owner for another role."
SESSION_IS_OVER = "Sign in again: the last sign-in is over, or the keyring does not have it."


@dataclass(frozen=True, slots=True)
class Entry:
    """A way in that works: where, with which token, and who that is."""

    place: Place
    access: Access
    me: wire.Me
    not_kept: bool = False
    """Whether the token should have been kept, and there is no keyring that takes it."""


class Connecting(QObject):
    """Tries to get in, one attempt at a time. GUI thread. Exactly one of the signals follows each attempt."""

    came = Signal(object)
    """An Entry."""
    failed = Signal(str, bool)
    """Why not; whether the service did not answer at all."""

    def __init__(self, folder: Path, kept: KeptTokens, parent: QObject | None = None) -> None:
        """`folder` is the data folder of the service on this PC."""
        super().__init__(parent)
        self._folder, self._kept = folder, kept
        self._bridge: Bridge | None = None

    def here(self) -> None:
        """Try the service on this PC, with its admin key."""
        try:
            access = access_of(self._folder)
        except ClientError as error:
            self.failed.emit(str(error), isinstance(error, ServiceUnreachable))
            return
        self._ask_who(Place(), access)

    def again(self, place: Place) -> None:
        """Try a place with what the keyring has for it."""
        bridge = self._open(_access(place))

        async def read(job: Job) -> None:
            token = await asyncio.to_thread(self._kept.read, place.url)
            bridge.post(job.guard(self._have), place, token)

        bridge.begin(read)

    def there(self, place: Place, secret: str) -> None:
        """Try another place with a password or an API key, as the place says."""
        if place.sign_in == "key":
            self._ask_who(place, _access(place, secret.strip()))
            return
        bridge = self._open(_access(place))
        bridge.ask(calls.log_in(place.user, secret), lambda session: self._logged_in(place, session), self._fail)

    def stop(self) -> None:
        """Give an attempt up. Waits for its thread."""
        if self._bridge is not None:
            self._bridge.stop()
            self._bridge.deleteLater()
            self._bridge = None

    def _open(self, access: Access) -> Bridge:
        self.stop()
        self._bridge = Bridge(access, self)
        self._bridge.start()
        return self._bridge

    def _have(self, place: Place, token: str) -> None:
        if token:
            self._ask_who(place, _access(place, token))
        else:
            self.stop()
            self.failed.emit(SESSION_IS_OVER, False)

    def _logged_in(self, place: Place, session: wire.Session) -> None:
        self._enter(Entry(place, _access(place, session.token), session.me))

    def _ask_who(self, place: Place, access: Access) -> None:
        bridge = self._open(access)
        bridge.ask(calls.who_am_i(), lambda me: self._enter(Entry(place, access, me)), self._fail)

    def _enter(self, entry: Entry) -> None:
        if not {"view", "admin"} & set(entry.me.scopes):
            self.stop()
            self.failed.emit(ONLY_CHAT, False)
            return
        bridge = self._bridge
        if bridge is None or not entry.place.url:
            self._end(entry)
            return

        async def keep(job: Job) -> None:
            kept = await finish_in_thread(lambda: self._keep(entry))
            bridge.post(job.guard(self._end), replace(entry, not_kept=entry.place.stay and not kept))

        bridge.begin(keep)

    def _keep(self, entry: Entry) -> bool:
        if entry.place.stay:
            return self._kept.keep(entry.place.url, entry.access.token)
        self._kept.forget(entry.place.url)
        return False

    def _end(self, entry: Entry) -> None:
        self.stop()
        self.came.emit(entry)

    def _fail(self, error: ClientError) -> None:
        self.stop()
        self.failed.emit(str(error), isinstance(error, ServiceUnreachable))


def _access(place: Place, token: str = "") -> Access:
    return Access(place.url, token, Path(place.authority) if place.authority else None)
