"""Whether this agent may update itself, and whom it believes. Blocking, small reads.

A root document lies beside the program, put there by whoever built it. A company that signs its own releases puts its
own in a place that only administrators of the PC can write; then that one counts, and the packaged one does not.
"""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import msgspec

from agent.update.layout import Installation, find_installation, running_program, who_manages
from agent.update.releases import MAX_DOCUMENT_BYTES

ROOT_NAME = "update-root.json"


class Means(msgspec.Struct, frozen=True):
    """What updates are made with; `why_off` is a sentence if there are none."""

    installation: Installation | None
    root: bytes = b""
    why_off: str = ""


def find_means(program: Path | None = None, machine_wide: Path | None = None) -> Means:
    """Look where this program lies, who manages it, and which root it is to believe."""
    program = program or running_program()
    installation = find_installation(program)
    if manager := who_manages(program):
        return Means(None, why_off=f"Self-update is off: this agent was installed by {manager}, which updates it.")
    if installation is None:
        return Means(None, why_off="Self-update is off: this agent is no bundle among versions; update it by hand.")
    if not os.access(installation.root, os.W_OK) or not os.access(installation.versions, os.W_OK):
        return Means(None, why_off="Self-update is off: this user may not change the agent's folder.")
    own = machine_wide or machine_root()
    if own.exists():
        if not only_administrators_write(own):
            return Means(None, why_off=f"Self-update is off: others than administrators may change {own}.")
        return _with_root(installation, own)
    return _with_root(installation, program.resolve().parent / ROOT_NAME)


def machine_root() -> Path:
    """Where a company's own root document lies."""
    if sys.platform == "win32":
        return Path(os.environ.get("PROGRAMDATA", r"C:\ProgramData")) / "Fallow" / ROOT_NAME
    if sys.platform == "darwin":
        return Path("/Library/Application Support/Fallow") / ROOT_NAME
    return Path("/etc/fallow") / ROOT_NAME


def only_administrators_write(path: Path) -> bool:
    """Say whether a file is root's and nobody else may write it; Windows guards its folder by inherited rights."""
    if sys.platform == "win32":
        return True
    found = path.stat()
    return found.st_uid == 0 and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _with_root(installation: Installation, path: Path) -> Means:
    try:
        with path.open("rb") as file:
            root = file.read(MAX_DOCUMENT_BYTES + 1)
    except OSError:
        return Means(None, why_off="Self-update is off: there is no root document that vouches for releases here.")
    if len(root) > MAX_DOCUMENT_BYTES:
        return Means(None, why_off=f"Self-update is off: {path} is too large for a root document.")
    return Means(installation, root)
