"""How the window looks and listens, kept as a small file that people can read and copy."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from console.data import write_whole
from console.errors import DataFolderUnusable

log = logging.getLogger(__name__)

Theme = Literal["system", "light", "dark", "contrast"]
Width = Literal["narrow", "wide", "full"]


class ChatSettings(msgspec.Struct, frozen=True):
    """`font_percent` is of the system's size; `shortcuts` are only those that were changed, by the action's name."""

    theme: Theme = "system"
    font_percent: Annotated[int, msgspec.Meta(ge=70, le=250)] = 100
    width: Width = "wide"
    enter_sends: bool = True
    announces: bool = True
    model: str = ""
    chat_id: str = ""
    shortcuts: dict[str, str] = {}
    closed_folders: list[str] = []


def read_settings(path: Path) -> ChatSettings:
    """Read the file; what cannot be read is as if it were not there."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=ChatSettings)
    except FileNotFoundError:
        return ChatSettings()
    except (OSError, msgspec.MsgspecError) as error:
        log.info("%s cannot be read (%s); the settings begin anew.", path, type(error).__name__)
        return ChatSettings()


def write_settings(path: Path, settings: ChatSettings) -> None:
    """Keep the settings; a disk that is full costs no more than them."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(path, msgspec.json.format(msgspec.json.encode(settings)) + b"\n", mode=0o600)
    except (OSError, DataFolderUnusable) as error:
        log.info("The settings cannot be kept: %s", error)
