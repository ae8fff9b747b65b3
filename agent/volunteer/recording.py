"""Keeps `availability.json` beside the other files of the data folder, as long as the policy lets it. Blocks."""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec

from agent.link.keystore import write_private
from agent.volunteer.availability import CELLS, Rest, coarse, watch
from agent.volunteer.policy import Policy
from agent.volunteer.reasons import ReasonCode
from agent.volunteer.states import VolunteerState

log = logging.getLogger(__name__)

NAME = "availability.json"
EVERY_S = 60.0
SAVE_EVERY_S = 1800.0
NOTHING_OF_REST = frozenset(
    {
        ReasonCode.LINK_DOWN,
        ReasonCode.SETTINGS,
        ReasonCode.UPDATING,
        ReasonCode.CLOCK,
        ReasonCode.CERTIFICATE,
        ReasonCode.SUSPENDED_BY_ADMIN,
        ReasonCode.REVOKED,
    }
)
"""Reasons that say nothing about when this PC rests."""


class AvailabilityRecorder:
    """Call `note` about once a minute and `save` at the end. A damaged file is begun anew: nothing hangs on it."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME
        self._rest = _read(self._path)
        self._saved_s = 0.0
        self._said_undeletable = False

    def note(self, state: VolunteerState, policy: Policy, unix_s: float, utc_offset_s: float) -> None:
        """Count the time since the last call; forget everything where the policy forbids to learn."""
        if not policy.learn_availability:
            self._rest = Rest()
            try:
                self._path.unlink(missing_ok=True)
            except OSError as error:
                if not self._said_undeletable:  # it is tried again every minute
                    log.warning(
                        "%s is not wanted any more and cannot be deleted (%s); delete it.", self._path, error.strerror
                    )
                self._said_undeletable = True
            return
        resting = all(reason.code in NOTHING_OF_REST for reason in state.reasons)
        self._rest = watch(self._rest, unix_s, utc_offset_s, resting=resting, longest_s=5 * EVERY_S)
        if not 0 <= unix_s - self._saved_s < SAVE_EVERY_S:
            self._saved_s = unix_s
            self.save()

    def shared(self, policy: Policy) -> list[int]:
        """Return what the console is told: nothing, unless the policy lets it."""
        return coarse(self._rest) if policy.learn_availability and policy.share_availability else []

    def save(self) -> None:
        """Write what is known. A disk that is full costs some of the past, not the agent."""
        if self._rest.until_unix_s <= 0:
            return
        try:
            write_private(self._path, msgspec.json.encode(self._rest))
        except OSError as error:
            log.info("%s cannot be written (%s).", self._path, error)


def _read(path: Path) -> Rest:
    try:
        rest = msgspec.json.decode(path.read_bytes(), type=Rest)
    except FileNotFoundError:
        return Rest()
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        log.info("%s is begun anew: it cannot be read (%s).", path, error)
        return Rest()
    sizes_fit = len(rest.watched_h) == len(rest.resting_h) == CELLS
    return rest if sizes_fit and min((*rest.watched_h, *rest.resting_h)) >= 0 else Rest()
