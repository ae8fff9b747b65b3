"""Which PC and which user an identity was made on, as hashes: a copied data folder must not become a second PC.

Machine ids are neither secret nor unique (cloned disk images share them), so they prove nothing and are never sent as
they are. What cannot be found out is left open and never held against a PC.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import msgspec

_PLACES = (Path("/etc/machine-id"), Path("/var/lib/dbus/machine-id"))


class Binding(msgspec.Struct, frozen=True):
    """Hashes (hex SHA-256) of the machine's id and of the user; empty where unknown."""

    machine_sha256: str = ""
    user_sha256: str = ""

    def is_elsewhere(self, other: Binding) -> bool:
        """Whether two bindings are surely of different machines or users."""
        pairs = ((self.machine_sha256, other.machine_sha256), (self.user_sha256, other.user_sha256))
        return any(mine and theirs and mine != theirs for mine, theirs in pairs)


def this_pc(fleet_id: str) -> Binding:
    """Describe this machine and user for one fleet: the same PC looks different to others. Blocks (files)."""
    return Binding(_hash(fleet_id, "machine", _machine_id()), _hash(fleet_id, "user", _user()))


def _hash(fleet_id: str, kind: str, value: str) -> str:
    return hashlib.sha256(f"fallow-{kind}-1|{fleet_id}|{value}".encode()).hexdigest() if value else ""


if sys.platform == "win32":
    import getpass
    import winreg

    def _user() -> str:
        return f"{os.environ.get('USERDOMAIN', '')}\\{getpass.getuser()}"

    def _machine_id() -> str:
        try:
            with winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, r"SOFTWARE\Microsoft\Cryptography") as key:
                return str(winreg.QueryValueEx(key, "MachineGuid")[0])
        except OSError:
            return ""

else:

    def _user() -> str:
        return str(os.getuid())

    def _machine_id() -> str:
        if sys.platform == "darwin":
            return _mac_machine_id()
        for place in _PLACES:
            try:
                found = place.read_text("ascii").strip()
            except (OSError, UnicodeDecodeError):
                continue
            if found and found != "uninitialized":
                return found
        return ""


def _mac_machine_id() -> str:
    command = ["/usr/sbin/ioreg", "-rd1", "-c", "IOPlatformExpertDevice"]
    try:
        found = subprocess.run(command, capture_output=True, timeout=5, check=False, text=True).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""
    lines = [line for line in found.splitlines() if "IOPlatformUUID" in line]
    return lines[0].rpartition("= ")[2].strip().strip('"') if lines else ""
