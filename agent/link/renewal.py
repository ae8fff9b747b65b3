"""Keeping an identity good: a new key and certificate before the old one ends, or after, and why one is refused.

    new key saved ─► asked for, signed by the present key ─► certificate saved ─► tried ─► identity.json switched

Whatever is cut off on the way, one identity stays whole, and the next attempt goes on with the same new key: the
console counts it as the same renewal.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from functools import partial

import msgspec
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from websockets.exceptions import ConnectionClosed

from agent.link.enrol_messages import (
    PROTOCOL,
    Diagnose,
    Diagnosis,
    FromEnrollee,
    FromEnroller,
    Granted,
    Refused,
    Renew,
    renewal_content,
)
from agent.link.errors import (
    ConsoleUnreachable,
    EnrolmentDenied,
    IdentityMissing,
    IdentityUnreadable,
    ProtocolMismatch,
)
from agent.link.identity import DeviceId, Identity, PreparedIdentity, client_context, prepare_identity
from agent.link.keys import DeviceKey, certificate_request, create_key, load_key
from agent.link.keystore import Keystore, write_private
from agent.link.leftovers import RENEWAL_FILE, PendingRenewal, clear_keys, read_pending
from agent.link.pinning import VerifiedConsole, ask, verified_connection
from agent.threads import finish_in_thread

_log = logging.getLogger(__name__)


async def renew(identity: Identity, keystore: Keystore) -> Identity:
    """Get the next key and certificate and make them the folder's identity; `identity` stays usable for an hour.

    Works after the certificate's end. Raises EnrolmentDenied (the console says no: `code` is the device's state),
    other EnrolmentError kinds, IdentityError kinds, OSError.
    """
    present = await asyncio.to_thread(load_key, identity.folder, identity.record.stem, keystore)
    fresh = await finish_in_thread(partial(_next_key, identity, keystore))
    unreachable: list[str] = []
    for url in identity.urls:
        try:
            async with verified_connection(url, identity.fleet_id, identity.authorities_pem) as console:
                granted = _as_granted(await ask(console, _request(console, identity, present, fresh)))
            prepared = _prepared(identity, fresh, granted)
            await finish_in_thread(prepared.write_pair)
            await _try_out(url, prepared.identity)
        except (ConsoleUnreachable, ConnectionClosed) as error:
            unreachable.append(str(error) if isinstance(error, ConsoleUnreachable) else f"{url} (it closed)")
            continue
        await finish_in_thread(partial(_switch, prepared, keystore))
        _log.info("This PC's certificate was renewed; it is good until %s.", _day(prepared.identity))
        return prepared.identity
    raise ConsoleUnreachable(f"The console does not answer at {'; '.join(unreachable)}; check the network.")


async def diagnose(identity: Identity) -> Diagnosis:
    """Ask the console why it refuses this identity (TLS 1.3 hides it). Raises EnrolmentError kinds."""
    message = Diagnose(certificate=identity.certificate.public_bytes(Encoding.DER))
    unreachable: list[str] = []
    for url in identity.urls:
        try:
            async with verified_connection(url, identity.fleet_id, identity.authorities_pem) as console:
                return _as_diagnosis(await ask(console, message))
        except ConsoleUnreachable as error:
            unreachable.append(str(error))
        except ConnectionClosed:
            unreachable.append(f"{url} (it closed the connection)")
    raise ConsoleUnreachable(f"The console does not answer at {'; '.join(unreachable)}; check the network.")


def _next_key(identity: Identity, keystore: Keystore) -> DeviceKey:
    """Return the key an earlier attempt made, or a new one."""
    folder, path = identity.folder, identity.folder / RENEWAL_FILE
    pending = read_pending(path, PendingRenewal)
    if pending is not None and pending.follows == identity.record.stem:
        with contextlib.suppress(IdentityMissing, IdentityUnreadable):
            return load_key(folder, pending.stem, keystore)
    key = create_key(folder, keystore)
    write_private(path, msgspec.json.encode(PendingRenewal(key.stem, identity.record.stem)))
    return key


def _request(console: VerifiedConsole, identity: Identity, present: DeviceKey, fresh: DeviceKey) -> Renew:
    certificate = identity.certificate.public_bytes(Encoding.DER)
    csr, nonce, generation = certificate_request(fresh), secrets.token_bytes(32), identity.record.generation
    unsigned = Renew(PROTOCOL, certificate, csr, generation, nonce, b"")
    content = renewal_content(console.hello.nonce, console.server_certificate, unsigned)
    return msgspec.structs.replace(unsigned, signature=present.key.sign(content, ec.ECDSA(hashes.SHA256())))


def _as_granted(reply: FromEnroller) -> Granted:
    if isinstance(reply, Granted):
        return reply
    if isinstance(reply, Refused):
        raise EnrolmentDenied(reply.message, reply.code)
    raise ProtocolMismatch("The console's answer makes no sense here; update Fallow on this PC.")


def _as_diagnosis(reply: FromEnroller) -> Diagnosis:
    if isinstance(reply, Diagnosis):
        return reply
    raise ProtocolMismatch("The console answered something else than a diagnosis; update Fallow on this PC.")


def _prepared(identity: Identity, fresh: DeviceKey, granted: Granted) -> PreparedIdentity:
    try:
        return prepare_identity(
            fresh,
            fleet_id=identity.fleet_id,
            fleet_name=identity.record.fleet_name,
            device_id=DeviceId(granted.device_id),
            urls=identity.urls,
            certificate_pem=granted.certificate_pem,
            authorities_pem=granted.authorities_pem,
            generation=granted.generation,
            mark=identity.record.mark,
        )
    except (IdentityUnreadable, ValueError) as error:
        raise ProtocolMismatch(f"The console sent a certificate that does not fit this PC ({error}).") from None


async def _try_out(url: str, identity: Identity) -> None:
    """Show the new certificate once: the console makes its key the device's, and we know that it works."""
    context = await asyncio.to_thread(client_context, identity)
    question: FromEnrollee = Diagnose(certificate=identity.certificate.public_bytes(Encoding.DER))
    async with verified_connection(url, identity.fleet_id, identity.authorities_pem, context) as console:
        told = _as_diagnosis(await ask(console, question))
    if told.code != "ok":
        raise EnrolmentDenied(told.message, told.code)


def _switch(prepared: PreparedIdentity, keystore: Keystore) -> None:
    prepared.make_current()
    clear_keys(prepared.identity.folder, prepared.identity.record, keystore)


def _day(identity: Identity) -> str:
    return f"{identity.certificate.not_valid_after_utc:%Y-%m-%d}"
