"""TLS for programs that show themselves as this PC, made of its credentials.

Light on purpose: a stage's child process uses it.
"""

from __future__ import annotations

import ssl

from agent.stage.types import Credentials


def client_tls(credentials: Credentials) -> ssl.SSLContext:
    """TLS for dialling a console or a peer of this fleet. Reads files. Raises OSError (ssl.SSLError is one)."""
    context = trusting_context(credentials.authorities_pem)
    show(credentials, context)
    return context


def peer_tls(credentials: Credentials) -> ssl.SSLContext:
    """TLS for peers of this fleet that dial this PC: both sides verified. Reads files. Raises OSError.

    Which device dials is not checked here: compare its certificate's URI with the route ticket.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_STRICT
    context.num_tickets = 0  # a resumed session would outlive a certificate
    context.load_verify_locations(cadata=credentials.authorities_pem.decode("ascii"))
    show(credentials, context)
    return context


def trusting_context(authorities_pem: bytes) -> ssl.SSLContext:
    """TLS 1.3 that trusts only the fleet's own authorities and shows no certificate of its own."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # CERT_REQUIRED and check_hostname are its defaults
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_STRICT
    context.load_verify_locations(cadata=authorities_pem.decode("ascii"))
    return context


def unverified_context() -> ssl.SSLContext:
    """TLS for a connection that only fetches authorities, which a pin or an endorsement must vouch for.

    Nothing secret is ever sent on it; whatever is said is said on a second one, verified against those authorities.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def show(credentials: Credentials, context: ssl.SSLContext) -> None:
    """Let a context show this PC's certificate. Reads files. Raises OSError (ssl.SSLError is one)."""
    context.load_cert_chain(credentials.certificate, credentials.key, password=lambda: credentials.passphrase)
