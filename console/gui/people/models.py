"""The tables of people and keys."""

from __future__ import annotations

import time
from typing import Any

from console.gui.rows import Heading, KeyedModel
from console.gui.times import moment_text
from console.registry.records import ApiKey, Quota, User
from shard_export.library.counts import counted


class UserModel(KeyedModel[User]):
    """People."""

    headings = (Heading("Name", 24), Heading("Role", 14), Heading("State", 30), Heading("Added", 25))

    def key_of(self, item: User) -> str:
        return item.name

    def text(self, item: User, column: int) -> str:
        return (item.name, item.role, user_state(item), moment_text(item.created_s))[column]


class KeyModel(KeyedModel[ApiKey]):
    """API keys without their secrets."""

    headings = (
        Heading("Name", 24), Heading("State", 10), Heading("May", 14), Heading("Of", 16), Heading("Limits", 44),
        Heading("Tokens today", 14, number=True), Heading("Ends", 25), Heading("Made", 25), Heading("Id", 20),
    )  # fmt: skip

    def key_of(self, item: ApiKey) -> str:
        return item.key_id

    def text(self, item: ApiKey, column: int) -> str:
        texts = (
            item.name, key_state(item, time.time()), ", ".join(item.scopes), item.user or "nobody",
            quota_text(item.quota), f"{item.tokens_today:,}",
            "never" if item.expires_s is None else moment_text(item.expires_s), moment_text(item.created_s),
            item.key_id,
        )  # fmt: skip
        return texts[column]

    def sort_key(self, item: ApiKey, column: int) -> Any:
        return item.tokens_today if self.headings[column].number else self.text(item, column)


def user_state(user: User) -> str:
    """Say whether somebody may sign in."""
    if user.disabled_s is not None:
        return "disabled"
    return "may sign in" if user.has_password else "has no password, only keys"


def key_state(key: ApiKey, now_s: float) -> str:
    """Say in one word whether a key can be used."""
    if key.revoked_s is not None:
        return "revoked"
    return "ended" if key.expires_s is not None and key.expires_s <= now_s else "live"


def quota_text(quota: Quota) -> str:
    """Say what a key may use."""
    parts = []
    if quota.streams is not None:
        parts.append(f"{quota.streams} at once")
    if quota.tokens_per_day is not None:
        parts.append(f"{counted(quota.tokens_per_day, 'token', shown=f'{quota.tokens_per_day:,}')} a day")
    if quota.models:
        parts.append(f"only {', '.join(quota.models)}")
    return ", ".join(parts) or "none"
