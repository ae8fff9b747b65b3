"""This PC's membership while the agent runs: its identity, kept renewed, its mark, and why the console refuses it.

`AgentService` dials with what this holds. Event loop only; files and keyring are touched in threads.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable
from functools import partial
from urllib.parse import urlsplit

from agent.link.authorities import read_authorities
from agent.link.channel import Dialler
from agent.link.closing import LinkDown, NotApproved, NotRecognised
from agent.link.errors import EnrolmentError, IdentityError, LinkError
from agent.link.identity import (
    DeviceId,
    Identity,
    client_context,
    credentials_of,
    device_hostname,
    device_uri,
    with_authorities,
)
from agent.link.keystore import Keystore
from agent.link.mark import keep_mark, read_mark
from agent.link.pinning import learn_authorities
from agent.link.renewal import diagnose, renew
from agent.link.signatures import check_digest
from agent.stage.types import DirectSpec, UplinkSpec
from agent.threads import finish_in_thread

log = logging.getLogger(__name__)

NOT_APPROVED_CODES = frozenset({"pending", "suspended", "expired", "evicted", "banned", "retired"})
LONGEST_LOOK_S = 6 * 3600.0
"""A clock may jump and a PC may sleep: when the next renewal is due is looked at again at least this often."""
RETRY_S = 15 * 60.0


class Membership:
    """One identity over the agent's life, and the dialler that shows it. `now` is Unix time. Reads files when made."""

    def __init__(
        self,
        identity: Identity,
        keystore: Keystore | None = None,
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.identity = identity
        self._keystore = keystore or Keystore("agent")
        self._now = now
        self._console_ahead_s = 0.0
        self._said_to_be_expired = False
        tls = client_context(identity)
        self.dialler = Dialler(identity.urls, tls, identity.server_hostname, self.why_refused)

    def take_console_time(self, console_now_s: float) -> None:
        """Measure lifetimes by the console's clock from now on: this PC's may be wrong."""
        self._console_ahead_s = console_now_s - self._now()

    def check_signature(self, digest: str, signature: bytes) -> None:
        """Raise SignatureRefused for a library this fleet's console did not sign."""
        now_s = self._now() + self._console_ahead_s
        check_digest(signature, digest, read_authorities(self.identity.authorities_pem), now_s)

    @property
    def due_in_s(self) -> float:
        """Seconds until the certificate should be renewed; 0 or less: now."""
        if self._said_to_be_expired:
            return 0.0
        return self.identity.renew_after_s - self._now() - self._console_ahead_s

    async def renew_if_due(self) -> LinkError | None:
        """Renew the certificate if it is time; returns why that failed. The identity stays as it was then."""
        if self.due_in_s > 0:
            return None
        try:
            renewed = await renew(self.identity, self._keystore)
            context = await asyncio.to_thread(client_context, renewed)
        except (LinkError, OSError) as error:
            problem = _as_link_error(error)
            log.info("The certificate of this PC is not renewed yet: %s", problem)
            return problem
        self.identity, self._said_to_be_expired = renewed, False
        self.dialler.use(context)
        return None

    async def keep_renewed(self) -> None:
        """Renew whenever it is time, until cancelled."""
        while True:
            await asyncio.sleep(min(max(self.due_in_s, 1.0), LONGEST_LOOK_S))
            if await self.renew_if_due() is not None:
                await asyncio.sleep(RETRY_S * random.uniform(0.5, 1.5))  # noqa: S311 - jitter

    def uplink(self) -> UplinkSpec:
        """Say how another program of this PC reaches the console: at the address that answered last, as this device."""
        address = urlsplit(self.dialler.url).netloc
        return UplinkSpec([address], self.identity.server_hostname, credentials_of(self.identity))

    async def learn_authorities(self) -> bool:
        """Look for consoles' roots that those we trust vouch for; returns whether there are new ones.

        For when a console shows a certificate that does not hold: its root may have changed while this PC was away.
        """
        now_s = self._now() + self._console_ahead_s
        for url in self.identity.urls:
            try:
                grown = await learn_authorities(url, self.identity.fleet_id, self.identity.authorities_pem, now_s)
            except EnrolmentError:
                continue
            if grown != self.identity.authorities_pem:
                log.info("The console's root certificate has changed, vouched for by the one this PC knows.")
                return await self._trust(grown)
        return False

    async def _trust(self, authorities_pem: bytes) -> bool:
        try:
            self.identity = await finish_in_thread(partial(with_authorities, self.identity, authorities_pem))
        except OSError as error:
            log.warning("The new roots cannot be kept: %s", _as_link_error(error))
            return False
        self.dialler.use(await asyncio.to_thread(client_context, self.identity))
        return True

    def direct(
        self, route_key: bytes, console_ahead_s: float, host: str, ports: tuple[int, int], *, listens: bool
    ) -> DirectSpec:
        """Say what the direct links of a stage need, with the certificate of now."""
        identity = self.identity
        return DirectSpec(
            device_id=identity.device_id,
            device_uri_prefix=device_uri(identity.fleet_id, DeviceId("")),
            device_name_suffix=device_hostname(identity.fleet_id, DeviceId("")),
            host=host,
            ports=ports,
            listens=listens,
            route_key=route_key,
            console_ahead_s=console_ahead_s,
            credentials=credentials_of(identity),
        )

    async def mark(self) -> str:
        """Return the mark to show at the next session."""
        return await asyncio.to_thread(read_mark, self.identity.mark_path)

    async def keep(self, mark: str) -> bool:
        """Save a session's mark; False if it could not be. Cancelling waits for it: a mark that is written late, over
        the next session's, would make this PC look like a copy."""
        if not mark:
            return False
        return await finish_in_thread(partial(keep_mark, self.identity.mark_path, mark))

    async def why_refused(self) -> LinkDown | None:
        """Ask over the link that needs no certificate why we are refused; None if the console sees no reason."""
        try:
            told = await diagnose(self.identity)
        except EnrolmentError:
            return None
        if told.code == "ok":
            return None
        # This PC's own clock may say otherwise.
        self._said_to_be_expired = told.code == "expired"
        kind = NotApproved if told.code in NOT_APPROVED_CODES else NotRecognised
        return kind(told.message, told.code)


def _as_link_error(error: LinkError | OSError) -> LinkError:
    if isinstance(error, LinkError):
        return error
    return IdentityError(
        f"A file of this PC's identity cannot be read or written ({error.strerror}); free space or fix rights."
    )
