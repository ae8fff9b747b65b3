"""How files are signed on Windows and macOS: commands made from the environment. Pure.

No secret is ever an argument: certificates are named and lie in the system's stores or in a service, and what logs in
there is read by the tool itself. Without these variables nothing is signed.

    FALLOW_SIGN_THUMBPRINT      Windows: SHA-1 of a certificate in the user's store, or on a token
    FALLOW_SIGN_DLIB, FALLOW_SIGN_METADATA
                                Windows: Azure Trusted Signing, its library and its JSON; it reads AZURE_* variables
    FALLOW_SIGN_TIMESTAMP       Windows: another time stamping service
    FALLOW_SIGN_APPLICATION     macOS: the name of a "Developer ID Application" identity in the keychain
    FALLOW_SIGN_INSTALLER       macOS: that of a "Developer ID Installer" identity
    FALLOW_NOTARY_PROFILE       macOS: a profile that `xcrun notarytool store-credentials` kept in the keychain
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from installer.packaging.errors import PackagingError

TIMESTAMP_URL = "http://timestamp.digicert.com"
TRUSTED_SIGNING_TIMESTAMP_URL = "http://timestamp.acs.microsoft.com"
_THUMBPRINT = re.compile(r"[0-9A-Fa-f]{40}")


def signtool_command(environment: Mapping[str, str], files: Sequence[Path]) -> list[str]:
    """Return the command that signs files on Windows; empty: nothing is to be signed. Raises PackagingError."""
    thumbprint = environment.get("FALLOW_SIGN_THUMBPRINT", "").replace(" ", "")
    dlib, metadata = environment.get("FALLOW_SIGN_DLIB", ""), environment.get("FALLOW_SIGN_METADATA", "")
    if thumbprint and (dlib or metadata):
        raise PackagingError("Both a certificate and Azure Trusted Signing are named; set the variables of one only.")
    if bool(dlib) != bool(metadata):
        raise PackagingError("Azure Trusted Signing needs both FALLOW_SIGN_DLIB and FALLOW_SIGN_METADATA.")
    if thumbprint and not _THUMBPRINT.fullmatch(thumbprint):
        raise PackagingError("FALLOW_SIGN_THUMBPRINT is no SHA-1 thumbprint; it has 40 hexadecimal digits.")
    if not thumbprint and not dlib:
        return []
    which = ["/sha1", thumbprint] if thumbprint else ["/dlib", dlib, "/dmdf", metadata]
    standard = TIMESTAMP_URL if thumbprint else TRUSTED_SIGNING_TIMESTAMP_URL
    stamp = environment.get("FALLOW_SIGN_TIMESTAMP") or standard
    return ["signtool", "sign", "/fd", "SHA256", "/tr", stamp, "/td", "SHA256", *which, *map(str, files)]


def codesign_command(environment: Mapping[str, str], file: Path, entitlements: Path | None) -> list[str]:
    """Return the command that signs one program or library on macOS; empty: nothing is to be signed."""
    identity = environment.get("FALLOW_SIGN_APPLICATION", "")
    if not identity:
        return []
    asks = [] if entitlements is None else ["--entitlements", str(entitlements)]
    return ["codesign", "--force", "--timestamp", "--options", "runtime", *asks, "--sign", identity, str(file)]


def notary_commands(environment: Mapping[str, str], package: Path) -> list[list[str]]:
    """Return the commands that have Apple check a signed package and staple its answer; none: it is not wanted."""
    profile = environment.get("FALLOW_NOTARY_PROFILE", "")
    if not profile:
        return []
    submit = ["xcrun", "notarytool", "submit", str(package), "--keychain-profile", profile, "--wait"]
    return [submit, ["xcrun", "stapler", "staple", str(package)]]
