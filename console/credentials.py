"""What a console opens at its start or makes at its first: the fleet's authority, and the key of its local admin."""

from __future__ import annotations

import contextlib
import secrets
from pathlib import Path

from agent.link.keystore import Keystore
from console.data import admin_key_path, write_whole
from console.registry.authority import Authority
from console.registry.registry import Registry

LOCAL_ADMIN = "local admin"


def open_authority(registry: Registry, folder: Path, keystore: Keystore, fleet_name: str) -> Authority:
    """Open a console's authority; on a shared registry it is of the fleet that others serve there already.

    Raises RegistryError kinds, KeyLocked, OSError. Blocks.
    """
    if not registry.is_shared:
        return Authority.open(folder, keystore, fleet_name=fleet_name)
    own = Authority.open(folder, keystore, fleet_name=fleet_name) if any(folder.glob("fleet.json")) else None
    wanted = (own.fleet_id, own.fleet_name) if own is not None else (secrets.token_hex(6), fleet_name)
    fleet_id, name = registry.consoles.fleet(*wanted)
    authority = Authority.open(folder, keystore, fleet_name=name, fleet_id=fleet_id)
    registry.deployments.console_id = registry.deliveries.console_id = authority.console_id
    return authority


def ensure_admin_key(registry: Registry, folder: Path) -> None:
    """Keep a working admin key in the folder, for the command line of whoever may read it."""
    path = admin_key_path(folder)
    with contextlib.suppress(OSError, UnicodeDecodeError):
        known = registry.authenticate(path.read_text("utf-8").strip())
        if known is not None and known.allows("admin"):
            path.chmod(0o600)
            return
    # Each console of a shared registry has a local admin of its own.
    name = f"{LOCAL_ADMIN} {registry.deployments.console_id}".rstrip()
    for key in registry.keys.list():
        if key.name == name and key.revoked_s is None:
            registry.keys.revoke(key.key_id)
    _, secret = registry.keys.create(name, ["admin"])
    write_whole(path, f"{secret}\n".encode(), mode=0o600)
