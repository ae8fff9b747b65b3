"""What a program needs to show itself as this PC on a TLS link: files, their passphrase, the authorities to trust.

Light on purpose: a stage's child process uses it, and gets it through its pipe.
"""

from __future__ import annotations

import ssl

import msgspec


class Credentials(msgspec.Struct, frozen=True):
    """`certificate` and `key` are files; the key is encrypted with `passphrase`, which no text of this shows."""

    certificate: str
    key: str
    passphrase: str
    authorities_pem: bytes

    def __repr__(self) -> str:
        return f"Credentials({self.certificate!r})"


def client_tls(credentials: Credentials) -> ssl.SSLContext:
    """TLS for dialling a console or a peer of this fleet. Reads files. Raises OSError (ssl.SSLError is one)."""
    context = trusting_context(credentials.authorities_pem)
    show(credentials, context)
    return context


def trusting_context(authorities_pem: bytes) -> ssl.SSLContext:
    """TLS 1.3 that trusts only the fleet's own authorities and shows no certificate of its own."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # CERT_REQUIRED and check_hostname are its defaults
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_STRICT
    context.load_verify_locations(cadata=authorities_pem.decode("ascii"))
    return context


def show(credentials: Credentials, context: ssl.SSLContext) -> None:
    """Let a context show this PC's certificate. Reads files. Raises OSError (ssl.SSLError is one)."""
    context.load_cert_chain(credentials.certificate, credentials.key, password=lambda: credentials.passphrase)
