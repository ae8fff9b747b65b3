"""When an invite lets a PC in without an administrator: pure rules over what is known of the PC."""

from __future__ import annotations

import fnmatch
import ipaddress
from typing import Annotated

import msgspec

_Pattern = Annotated[str, msgspec.Meta(min_length=1, max_length=100)]


class ApprovalRule(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Conditions of automatic approval; every one that is set must hold, else the PC waits for an administrator.

    `networks` are the addresses it may come from (`10.1.0.0/16`), `names` patterns of host names (`lab-*`, any case),
    `keyring` asks for a key whose passphrase is not in a file. A host name and a key's protection are the PC's own
    words: they sort honest PCs, only the invite's secret and the network keep others out.
    """

    networks: Annotated[list[_Pattern], msgspec.Meta(max_length=64)] = []
    names: Annotated[list[_Pattern], msgspec.Meta(max_length=64)] = []
    keyring: bool = False

    def __post_init__(self) -> None:
        for network in self.networks:
            try:
                ipaddress.ip_network(network)
            except ValueError:
                raise ValueError(f"{network!r} is not a network; write one like 10.1.0.0/16") from None

    @property
    def limits(self) -> bool:
        """Whether the rule keeps anybody out."""
        return bool(self.networks or self.names or self.keyring)

    def objection(self, *, name: str, source: str, key_protection: str) -> str:
        """Say which condition a PC does not meet; empty if it meets them all. `source` is its address."""
        if self.networks and not _is_within(source, self.networks):
            return f"its address {source or 'is unknown and'} lies in none of the invite's networks"
        if self.names and not any(fnmatch.fnmatchcase(name.lower(), pattern.lower()) for pattern in self.names):
            return "its name fits none of the invite's patterns"
        if self.keyring and key_protection == "file":
            return "its key is protected neither by a keyring nor by a service's credential"
        return ""


def _is_within(source: str, networks: list[str]) -> bool:
    try:
        address = ipaddress.ip_address(source.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return any((mapped or address) in ipaddress.ip_network(network) for network in networks)


NO_RULE = ApprovalRule()
