"""TLS of the HTTP API when other PCs may reach it: a certificate of the fleet's authority for this PC's names."""

from __future__ import annotations

import ipaddress
import secrets
import ssl
import tempfile
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat

from console.registry.authority import Authority


def api_tls(authority: Authority, names: Sequence[str]) -> ssl.SSLContext:
    """Return a server context for the names and addresses clients dial. Blocks (key, disk).

    Key and certificate are made for this run only, so there is nothing to renew and nothing to steal.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = authority.issue_api(key.public_key(), [_general_name(name) for name in dict.fromkeys(names)])
    passphrase = secrets.token_hex(32)
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(passphrase.encode()))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2  # not every HTTP client speaks 1.3 yet
    # Python loads key pairs from files only; this one is encrypted and gone at the end of the block.
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "api.pem"
        path.write_bytes(private + certificate.public_bytes(Encoding.PEM))
        context.load_cert_chain(path, password=passphrase)
    return context


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
