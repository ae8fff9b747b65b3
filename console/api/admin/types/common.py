"""What several topics use. Times are Unix seconds, sizes bytes."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
Password = Annotated[str, msgspec.Meta(max_length=1024)]
ReasonText = Annotated[str, msgspec.Meta(max_length=400)]
TagList = Annotated[list[Annotated[str, msgspec.Meta(min_length=1, max_length=64)]], msgspec.Meta(max_length=32)]


class Done(msgspec.Struct, frozen=True):
    """A change was made."""

    done: bool = True
    detail: dict[str, Any] = {}
