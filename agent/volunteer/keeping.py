"""Keeps the administrator's policy and the owner's settings on the disk, and combines them. Blocks; one thread.

    policy.msgpack     the last good document of the administrator, signed as it came
    volunteer.json     what the owner wants, and how long they paused
    *.last             the one before, for when a file is torn

Both are replaced at once or not at all. What cannot be read is never taken for "no limits": a torn file is replaced by
the one before, and if that is gone too the owner's settings hold this PC until they are saved again.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from cryptography import x509

from agent.link.keystore import write_private
from agent.volunteer.documents import MAX_BODY_BYTES, PolicyBody, PolicyDocument, judge_document
from agent.volunteer.errors import PolicyRefused, SettingsUnreadable, WishRefused
from agent.volunteer.policy import Merged, Wishes, combine_wishes, merge
from agent.volunteer.wishes import PlainValue, check_wishes, from_plain, with_value

log = logging.getLogger(__name__)

POLICY_NAME, SETTINGS_NAME = "policy.msgpack", "volunteer.json"
MAX_FILE_BYTES = 2 * MAX_BODY_BYTES


class OwnerSettings(msgspec.Struct, frozen=True):
    """Content of volunteer.json. The pause is Unix time: 0 for none, -1 for until it is ended."""

    wishes: Wishes = Wishes()
    pause_until_unix_s: float = 0.0


class PolicyKeeper:
    """What the parties want, kept in the data folder. Reads both files when made; never raises for what it finds.

    Without a `fleet` there is no administrator but the machine's own: `machine` says what it wants at a Unix time.
    """

    def __init__(
        self,
        folder: Path,
        *,
        fleet: str = "",
        device: str = "",
        authorities: Callable[[], Sequence[x509.Certificate]] = list,
        machine: Callable[[float], Wishes] = lambda now_s: Wishes(),
        now_s: float,
    ) -> None:
        self._folder, self._machine = folder, machine
        self._fleet, self._device, self._authorities = fleet, device, authorities
        self.problems: dict[str, str] = {}
        """Sentences for people, by file."""
        self._admin = self._read(POLICY_NAME, lambda data: self._judge_kept(data, now_s)) if fleet else None
        owner = self._read(SETTINGS_NAME, _parse_settings)
        self._owner = owner or OwnerSettings()
        self._unreadable = owner is None and SETTINGS_NAME in self.problems

    @property
    def settings_unreadable(self) -> bool:
        """Whether the owner's wishes are lost, which holds this PC until they are saved again."""
        return self._unreadable

    @property
    def owner(self) -> OwnerSettings:
        return self._owner

    @property
    def revision(self) -> int:
        """Of the administrator's policy; 0: there is none."""
        return 0 if self._admin is None else self._admin.revision

    def merged(self, now_s: float) -> Merged:
        """Combine what everybody wants at this Unix time."""
        admin, machine = self._admin, self._machine(now_s)
        if admin is None:
            return merge(machine, self._owner.wishes)
        both = combine_wishes(admin.wishes, machine)
        return merge(both, self._owner.wishes, admin_expired=admin.expires_s <= now_s)

    def take(self, document: PolicyDocument, now_s: float) -> int:
        """Judge a document from the console and keep it; return its revision. Raises PolicyRefused."""
        body = judge_document(
            document,
            fleet=self._fleet,
            device=self._device,
            authorities=self._authorities(),
            now_s=now_s,
            last=self._admin,
        )
        try:
            self._write(POLICY_NAME, msgspec.msgpack.encode(document))
        except OSError as error:
            # It holds from now on all the same: the tighter of two answers to a full disk.
            self._admin = body
            raise PolicyRefused(
                f"The policy cannot be kept ({error.strerror or error}) and holds only until the agent stops; free "
                "some space or correct the folder's rights.",
                "disk",
            ) from error
        self._admin = body
        self.problems.pop(POLICY_NAME, None)
        return body.revision

    def change(self, name: str, value: PlainValue) -> None:
        """Keep what the owner wants of one row; None: no wish. Raises WishRefused or SettingsUnreadable."""
        wishes = with_value(self._owner.wishes, name, from_plain(name, value))
        self._keep(msgspec.structs.replace(self._owner, wishes=wishes))

    def keep_pause(self, until_unix_s: float) -> None:
        """Remember the owner's pause over a restart: 0 none, -1 until it is ended. Raises SettingsUnreadable.

        While the settings cannot be read it is remembered until the agent stops: to save it would be to save no wishes.
        """
        owner = msgspec.structs.replace(self._owner, pause_until_unix_s=until_unix_s)
        if self._unreadable:
            self._owner = owner
        elif owner != self._owner:
            self._keep(owner)

    def _keep(self, owner: OwnerSettings) -> None:
        try:
            self._write(SETTINGS_NAME, msgspec.json.format(msgspec.json.encode(owner)) + b"\n")
        except OSError as error:
            raise SettingsUnreadable(
                f"The settings cannot be kept ({error.strerror or error}); free some space or correct the rights of "
                f"{self._folder}."
            ) from error
        self._owner, self._unreadable = owner, False
        self.problems.pop(SETTINGS_NAME, None)

    def _judge_kept(self, data: bytes, now_s: float) -> PolicyBody:
        try:
            document = msgspec.msgpack.decode(data, type=PolicyDocument)
        except msgspec.MsgspecError as error:
            raise PolicyRefused(f"the file is damaged ({error})", "malformed") from None
        return judge_document(
            document,
            fleet=self._fleet,
            device=self._device,
            authorities=self._authorities(),
            now_s=now_s,
            last=None,
            kept=True,
        )

    def _read(self, name: str, parse: Callable[[bytes], Any]) -> Any:
        """Return what a file says, or what the one before it said if it is damaged; None if there is none."""
        for path in (self._folder / name, self._folder / f"{name}.last"):
            try:
                with path.open("rb") as file:
                    return parse(file.read(MAX_FILE_BYTES))
            except FileNotFoundError:
                break
            except (OSError, PolicyRefused, SettingsUnreadable) as error:
                self.problems[name] = f"{path} cannot be used ({error}); what was kept before it counts."
                log.warning("%s", self.problems[name])
        return None

    def _write(self, name: str, data: bytes) -> None:
        path = self._folder / name
        if name not in self.problems:
            with contextlib.suppress(FileNotFoundError):
                write_private(self._folder / f"{name}.last", path.read_bytes())
        write_private(path, data)


def forget_policy(folder: Path) -> None:
    """Delete what an administrator wanted: this PC has left their fleet. Raises OSError."""
    for name in (POLICY_NAME, f"{POLICY_NAME}.last"):
        (folder / name).unlink(missing_ok=True)


def _parse_settings(data: bytes) -> OwnerSettings:
    try:
        owner = msgspec.json.decode(data, type=OwnerSettings)
        return msgspec.structs.replace(owner, wishes=check_wishes(owner.wishes))
    except (msgspec.MsgspecError, UnicodeDecodeError, WishRefused) as error:
        raise SettingsUnreadable(str(error)) from None
