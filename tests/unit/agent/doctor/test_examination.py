"""What the doctor says of an identity that cannot be used."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from agent.doctor import examination
from agent.link.errors import IdentityUnreadable, KeyLocked
from agent.link.keystore import Keystore


@pytest.mark.parametrize(
    ("failure", "enrols"),
    [
        (IdentityUnreadable("It is damaged."), True),
        (KeyLocked("The keyring is locked; unlock it."), False),
        (PermissionError(errno.EACCES, "Permission denied", "/data/identity/identity.json"), False),
    ],
    ids=["damaged", "locked", "out of reach"],
)
async def test_only_a_lost_identity_asks_for_a_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: Exception, enrols: bool
) -> None:
    def load(*_: object) -> None:
        raise failure

    async def examine(_: object) -> list[object]:
        return []

    monkeypatch.setattr(examination, "load_identity", load)
    monkeypatch.setattr(examination, "examine", examine)
    (found,) = await examination.examine_agent(tmp_path, Keystore.files_only("agent"))
    assert (found.check, found.verdict) == ("identity", "problem")
    assert ("fallow-agent enrol" in found.advice) == enrols
