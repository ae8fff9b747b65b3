"""agent.tray.notices: what is worth a notification."""

from __future__ import annotations

from typing import Any

import pytest

from agent.tray.notices import DAY_S, Notices
from tests.support.fake_service import make_reason, make_status


def due(*steps: dict[str, Any], every_s: float = 1.0) -> list[str]:
    """What comes at the last of several statuses."""
    notices, kinds = Notices(), list[str]()
    for number, changes in enumerate(steps):
        kinds = list(notices.due(make_status(**changes), number * every_s))
    return kinds


def test_nothing_is_news_at_the_start() -> None:
    assert due({"policy_revision": 7, "reasons": [make_reason("revoked")]}) == []


@pytest.mark.parametrize(
    ("before", "after", "kinds"),
    [
        ({"phase": "pending"}, {"phase": "held"}, ["approved"]),
        ({"phase": "pending"}, {"phase": "unenrolled"}, []),
        ({"phase": "pending"}, {"phase": "unenrolled", "link_message": "Not a company PC."}, ["denied"]),
        ({"phase": "unenrolled"}, {"phase": "unenrolled", "link_message": "The invite has expired."}, []),
        ({"policy_revision": 1}, {"policy_revision": 2}, ["policy"]),
        ({"policy_revision": 0, "phase": "unenrolled"}, {"policy_revision": 1}, []),
        ({}, {"reasons": [make_reason("revoked")]}, ["identity"]),
        ({}, {"reasons": [make_reason("suspended_by_admin")]}, ["identity"]),
        ({"reasons": [make_reason("revoked")]}, {"reasons": [make_reason("revoked")]}, []),
        ({"phase": "serving"}, {"phase": "unenrolled", "reasons": [make_reason("not_approved")]}, []),
        ({"phase": "serving"}, {"phase": "held", "reasons": [make_reason("not_approved")]}, ["identity"]),
        ({"phase": "serving"}, {"phase": "paused", "reasons": [make_reason("user_input")]}, []),
    ],
)
def test_only_news_that_matter_come(before: dict[str, Any], after: dict[str, Any], kinds: list[str]) -> None:
    assert due(before, after) == kinds


@pytest.mark.parametrize("code", ["fullscreen", "presentation"])
def test_nothing_disturbs_a_film_or_a_talk(code: str) -> None:
    assert due({"policy_revision": 1}, {"policy_revision": 2, "reasons": [make_reason(code)]}) == []


def test_each_kind_comes_once_a_day() -> None:
    changes = [{"policy_revision": number} for number in (1, 2, 3)]
    assert due(*changes) == []
    assert due(*changes, every_s=DAY_S) == ["policy"]
