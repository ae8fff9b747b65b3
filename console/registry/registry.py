"""The registry: one database with everything the console remembers.

    registry = Registry.open(folder / "registry.sqlite3")
    registry.invites.create(...)      registry.devices.list(...)      registry.authenticate(token)

Methods are synchronous, take well under a millisecond on SQLite and a few on PostgreSQL, and seconds on a day when the
disk or the server is slow; they may be called from any thread. An event loop, which everybody's links and answers
share, has them done for it: `await registry.ask(...)`. Each change and its audit entry are one transaction.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self, TypeVar

from agent.threads import finish_in_thread
from console.registry.audit import Audit
from console.registry.consoles import Consoles
from console.registry.database import Database
from console.registry.deliveries import Deliveries
from console.registry.device_keys import DeviceKeys
from console.registry.devices import Devices
from console.registry.invites import Invites
from console.registry.keys import ApiKeys
from console.registry.libraries import Deployments, Libraries
from console.registry.marks import Marks
from console.registry.policies import Policies
from console.registry.records import Principal
from console.registry.releases import Releases
from console.registry.sessions import Sessions
from console.registry.sightings import Sightings
from console.registry.usage import UsageLog
from console.registry.users import Users

T = TypeVar("T")

AT_ONCE = 8
"""How many calls are done for event loops at the same time; the others wait. Fewer than the database's connections."""


class Registry:
    """The parts of the registry, over one database. `now` is the clock (Unix seconds)."""

    def __init__(self, database: Database, now: Callable[[], float]) -> None:
        self._database = database
        # Its own, so that what else takes threads for long keeps nobody out.
        self._threads = ThreadPoolExecutor(AT_ONCE, "registry")
        self.audit = Audit(database, now)
        self.devices = Devices(database, now)
        self.device_keys = DeviceKeys(database, now)
        self.marks = Marks(database, now)
        self.sightings = Sightings(database, now)
        self.invites = Invites(database, now)
        self.usage = UsageLog(database, now)
        self.users = Users(database, now)
        self.keys = ApiKeys(database, self.usage, now)
        self.sessions = Sessions(database, self.users, now)
        self.libraries = Libraries(database, now)
        self.deployments = Deployments(database, now)
        self.deliveries = Deliveries(database, now)
        self.consoles = Consoles(database, now)
        self.policies = Policies(database, now)
        self.releases = Releases(database, now)

    @classmethod
    def open(cls, where: str | Path, *, now: Callable[[], float] = time.time) -> Self:
        """Open (or create) the registry: an SQLite path or a SQLAlchemy URL. Upgrades older schemas, after a copy.

        Raises RegistryTooNew if a newer console wrote it, RegistryUnreadable if it cannot be opened.
        """
        return cls(Database.open(where, now()), now)

    def authenticate(self, token: str) -> Principal | None:
        """Return who a bearer token stands for now, an API key or a login; None for any that is not alive."""
        return self.keys.authenticate(token) or self.sessions.authenticate(token)

    async def ask(self, work: Callable[[], T], release: Callable[[T], object] = lambda result: None) -> T:
        """Have calls of this registry done for an event loop, and return what they return. Raises what they raise.

        Cancelling waits until they have ended, and `release` gets what they returned: what must follow a change follows
        it also then.
        """
        return await finish_in_thread(work, release, self._threads)

    @property
    def is_shared(self) -> bool:
        """Whether other consoles may use the same database."""
        return self._database.is_shared

    def close(self) -> None:
        """Close every connection; the registry cannot be used afterwards. What was asked for is done before."""
        self._threads.shutdown()
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
