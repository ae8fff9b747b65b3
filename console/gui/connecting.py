"""Getting in: from a place and what somebody typed to a way to the service that works."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from PySide6.QtCore import QObject, Signal

from agent.link.keystore import KeyringUnusable
from agent.look.loop import Job
from console import calls
from console.access import Access, access_of
from console.api.admin import types as wire
from console.errors import ClientError, ServiceUnreachable
from console.gui.bridge import Bridge
from console.gui.kept import KeptTokens, unusable_text
from console.gui.places import Place

ONLY_CHAT = "This sign-in may chat, but not look at the fleet; ask an owner for another role."
SESSION_IS_OVER = "Sign in again: the last sign-in is over, or the keyring does not have it."


@dataclass(frozen=True, slots=True)
class Entry:
    """A way in that works: where, with which token, and who that is."""

    place: Place
    access: Access
    me: wire.Me
    not_kept: str = ""
    """Why the token, which should have been kept, is not: a clause; empty where all is as it should be."""


class Connecting(QObject):
    """Tries to get in, one attempt at a time. GUI thread. Exactly one of the signals follows each, unless stopped."""

    came = Signal(object)
    """An Entry."""
    failed = Signal(str, bool)
    """Why not; whether the service did not answer at all."""

    def __init__(self, folder: Path, kept: KeptTokens, parent: QObject | None = None) -> None:
        """`folder` is the data folder of the service on this PC."""
        super().__init__(parent)
        self._folder, self._kept = folder, kept
        self._bridge: Bridge | None = None
        self._job: Job | None = None

    @property
    def is_busy(self) -> bool:
        """Whether an attempt is under way."""
        return self._bridge is not None

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
            try:
                token = await self._kept.read(place.url)
            except KeyringUnusable as error:
                bridge.post(job.guard(self._have), place, "", f"Sign in again: {unusable_text(error)}.")
            else:
                bridge.post(job.guard(self._have), place, token, SESSION_IS_OVER)

        self._job = bridge.begin(read)

    def there(self, place: Place, secret: str) -> None:
        """Try another place with a password or an API key, as the place says."""
        if place.sign_in == "key":
            self._ask_who(place, _access(place, secret.strip()))
            return
        bridge = self._open(_access(place))
        self._job = bridge.ask(
            calls.log_in(place.user, secret), lambda session: self._logged_in(place, session), self._fail
        )

    def stop(self) -> None:
        """Give an attempt up: nothing comes of it any more. Does not wait for its thread."""
        if self._job is not None:
            self._job.cancel()
            self._job = None
        if self._bridge is not None:
            self._bridge.stop_soon()
            self._bridge = None

    def _open(self, access: Access) -> Bridge:
        self.stop()
        self._bridge = Bridge(access)
        self._bridge.start()
        return self._bridge

    def _have(self, place: Place, token: str, why_not: str) -> None:
        if token:
            self._ask_who(place, _access(place, token))
        else:
            self.stop()
            self.failed.emit(why_not, False)

    def _logged_in(self, place: Place, session: wire.Session) -> None:
        self._enter(Entry(place, _access(place, session.token), session.me))

    def _ask_who(self, place: Place, access: Access) -> None:
        bridge = self._open(access)
        self._job = bridge.ask(calls.who_am_i(), lambda me: self._enter(Entry(place, access, me)), self._fail)

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
            bridge.post(job.guard(self._end), replace(entry, not_kept=await self._keep(entry)))

        self._job = bridge.begin(keep)

    async def _keep(self, entry: Entry) -> str:
        """Keep a token or let go of a former one, as the place says; returns why that could not be."""
        if not entry.place.stay:
            await self._kept.forget(entry.place.url)
            return ""
        try:
            await self._kept.keep(entry.place.url, entry.access.token)
        except KeyringUnusable as error:
            return unusable_text(error)
        return ""

    def _end(self, entry: Entry) -> None:
        self.stop()
        self.came.emit(entry)

    def _fail(self, error: ClientError) -> None:
        self.stop()
        self.failed.emit(str(error), isinstance(error, ServiceUnreachable))


def _access(place: Place, token: str = "") -> Access:
    return Access(place.url, token, Path(place.authority) if place.authority else None)
