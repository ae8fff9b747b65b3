"""What an interrupted change leaves in an identity's folder, and how it is cleared.

Whatever the power ends between two writes, `identity.json` names one whole identity: the former or the next. Beside it
there may be half a key, a key whose identity is over (with its entry in the keyring), an attempt that goes on with its
key later, and files that were not moved into place yet. All but the attempt is of no use to anybody.
"""

from __future__ import annotations

import contextlib
import logging
import re
from pathlib import Path
from typing import TypeVar

import msgspec

from agent.link.errors import IdentityMissing, IdentityUnreadable
from agent.link.identity import RECORD_FILE, Identity, IdentityRecord, read_record
from agent.link.keys import forget_key, forget_other_keys
from agent.link.keystore import Keystore
from agent.link.parsing import UNREADABLE

_log = logging.getLogger(__name__)
T = TypeVar("T")

ENROLMENT_FILE, RENEWAL_FILE = "enrolment.json", "renewal.json"
ASIDE_FILE = f"{RECORD_FILE}.unreadable"
"""A damaged record that was put aside; what it names stays until another identity is in force."""
_UNFINISHED = re.compile(r"\.(key-[0-9a-f]{8}\..*|[a-z]+\.(json|pem|txt))\.[a-z0-9_]{8}")
"""What `write_private` has not moved into place."""
_NAMED = re.compile(r"(key-[0-9a-f]{8}\.)?(authorities\.pem|mark\.txt)")


class PendingEnrolment(msgspec.Struct, frozen=True):
    """The invite that was used (the id of its token), and the key it was used with."""

    token_id: str
    stem: str


class PendingRenewal(msgspec.Struct, frozen=True):
    """The next key, and the one it follows."""

    stem: str
    follows: str


def read_pending(path: Path, kind: type[T]) -> T | None:
    """Read which attempt is under way; None if there is none, or none that can be read. Raises OSError."""
    with contextlib.suppress(FileNotFoundError, *UNREADABLE):
        return msgspec.json.decode(path.read_bytes(), type=kind)
    return None


def clear_leftovers(folder: Path, keystore: Keystore) -> None:
    """Delete all that neither the identity in force nor an attempt under way needs.

    For whoever holds the data folder's lock, while nothing else writes here. What cannot be deleted now is left to the
    next start. Blocks (disk, keyring).
    """
    try:
        record = _record(folder)
        if record is None and (folder / ASIDE_FILE).exists():
            return  # whoever repairs it by hand may need all of it
        _clear_files(folder, record)
        clear_keys(folder, record, keystore)
    except IdentityUnreadable:
        return
    except OSError as error:
        _log.info("What is left over in %s cannot be cleared now (%s).", folder, error.strerror)


def clear_keys(folder: Path, record: IdentityRecord | None, keystore: Keystore) -> None:
    """Delete every key but that of the identity in force and those of attempts under way. Raises OSError."""
    present = "" if record is None else record.stem
    stems, over = {present}, []
    renewal = read_pending(folder / RENEWAL_FILE, PendingRenewal)
    if renewal is None or renewal.follows != present:
        over.append(folder / RENEWAL_FILE)
    else:
        stems.add(renewal.stem)
    enrolment = read_pending(folder / ENROLMENT_FILE, PendingEnrolment)
    # An attempt whose key is in force has succeeded: the next one must not take that for a key to be thrown away.
    if enrolment is None or enrolment.stem == present:
        over.append(folder / ENROLMENT_FILE)
    else:
        stems.add(enrolment.stem)
    forget_other_keys(folder, stems, keystore)
    # The invite's last, so that who uses it again before all was cleared hears that it is done.
    for path in over:
        path.unlink(missing_ok=True)


def forget_identity(identity: Identity, keystore: Keystore) -> None:
    """Delete an identity. Raises OSError. Blocks.

    First what names it, so that a cut on the way leaves a PC in no fleet and no damaged member of one.
    """
    (identity.folder / RECORD_FILE).unlink(missing_ok=True)
    forget_key(identity.folder, identity.record.stem, keystore)


def _record(folder: Path) -> IdentityRecord | None:
    try:
        return read_record(folder)
    except IdentityMissing:
        return None


def _clear_files(folder: Path, record: IdentityRecord | None) -> None:
    in_use = set() if record is None else {record.authorities, record.mark}
    for path in folder.glob("*"):
        is_named = bool(_NAMED.fullmatch(path.name)) and path.name not in in_use
        if is_named or _UNFINISHED.fullmatch(path.name):
            path.unlink(missing_ok=True)
