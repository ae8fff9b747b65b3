"""A support bundle: parts are collected, cleaned, listed in a manifest, and written as one zip. Blocking.

The file appears whole or not at all, never in the place of another, and only its owner reads it.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import re
import tempfile
import time
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from agent.support.cleaning import Cleaner
from shard_export.library.counts import counted

log = logging.getLogger(__name__)

MANIFEST = "manifest.json"
MOST_LOG_BYTES = 4 << 20
"""Of each log the last of it."""
_PROGRESS = re.compile(r"(\d{1,4}) of (\d{1,4}): (\S+)")


class SupportError(Exception):
    """A bundle cannot be made: one sentence, what happened and what to do."""

    exit_code = 16


@dataclass(frozen=True, slots=True)
class Part:
    """One file of a bundle. `make` returns a text (its lines are cleaned one by one) or a value that becomes JSON."""

    name: str
    purpose: str
    make: Callable[[], object]


class Member(msgspec.Struct, frozen=True):
    """What the manifest says of one file; with a `problem` the file is not there."""

    name: str
    purpose: str
    size_bytes: int
    problem: str = ""


class Manifest(msgspec.Struct, frozen=True):
    """What is in a bundle, and what is not."""

    program: str
    made_s: float
    left_out: str
    files: list[Member]


LEFT_OUT = (
    "Keys, passwords, invites, private keys, prompts, answers, chats, users and the audit log are not in it; paths of "
    "people's folders are shortened."
)


def collect(
    program: str, parts: Sequence[Part], cleaner: Cleaner, on_part: Callable[[int, Part], object] = lambda *_: None
) -> tuple[Manifest, dict[str, bytes]]:
    """Make every part; one that cannot be made is a line of the manifest. Returns it and all files, itself first.

    `on_part` hears of each before it is made, with its number from 1.
    """
    files: dict[str, bytes] = {}
    members: list[Member] = []
    for number, part in enumerate(parts, 1):
        on_part(number, part)
        try:
            content = _rendered(part.make(), cleaner)
        except Exception as error:  # the edge of a part: the others are worth having all the same
            log.debug("The part %s cannot be made.", part.name, exc_info=True)
            why = cleaner.text(str(error)) if hasattr(error, "exit_code") else type(error).__name__
            members.append(Member(part.name, part.purpose, 0, f"It could not be made: {why}"))
            continue
        files[part.name] = content
        members.append(Member(part.name, part.purpose, len(content)))
    manifest = Manifest(program, round(time.time(), 3), LEFT_OUT, members)
    return manifest, {MANIFEST: _json(msgspec.to_builtins(manifest)), **files}


def _rendered(made: object, cleaner: Cleaner) -> bytes:
    if isinstance(made, str):
        return cleaner.lines(made).encode("utf-8", "backslashreplace")
    return _json(cleaner.value(msgspec.to_builtins(made)))


def _json(value: Any) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n"


def check_new(out: Path) -> None:
    """Raise SupportError when something is there already, or nothing can be."""
    if os.path.lexists(out):
        raise SupportError(f"{out} is there already; choose another place.")
    if not out.parent.is_dir():
        raise SupportError(f"The folder {out.parent} is not there; choose another place.")


def write_bundle(out: Path, files: dict[str, bytes]) -> None:
    """Write a new zip. Raises SupportError; nothing is left behind then."""
    check_new(out)
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as bundle:
        for name, content in files.items():
            bundle.writestr(name, content)
    try:
        descriptor, made = tempfile.mkstemp(dir=out.parent, prefix=f".{out.name}.")  # for its owner alone
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data.getvalue())
                file.flush()
                os.fsync(file.fileno())
            _publish(Path(made), out)
        finally:
            with contextlib.suppress(OSError):
                Path(made).unlink()
    except FileExistsError:
        raise SupportError(f"{out} is there already; choose another place.") from None
    except OSError as error:
        message = f"{out} cannot be written ({error.strerror}); free space, or choose another place."
        raise SupportError(message) from None


def _publish(made: Path, out: Path) -> None:
    """Give a file its name, unless that is taken. Raises FileExistsError."""
    if os.name == "nt":
        made.rename(out)  # refuses there what it replaces elsewhere
        return
    try:
        out.hardlink_to(made)
    except FileExistsError:
        raise
    except OSError:
        # A disk without hard links, such as a stick: between the look and the rename another could come, which is
        # what the look at the beginning is for.
        if os.path.lexists(out):
            raise FileExistsError from None
        made.rename(out)


def progress_line(number: int, count: int, name: str) -> str:
    """Say which part is being made."""
    return f"{number} of {count}: {name}"


def read_progress(line: str) -> tuple[int, int, str] | None:
    """Read such a line; None for any other."""
    found = _PROGRESS.fullmatch(line.strip())
    return (int(found[1]), int(found[2]), found[3]) if found else None


def last_of(file: Path) -> str:
    """Return the end of a log, beginning with a whole line. Raises OSError."""
    with file.open("rb") as log_file:
        size = log_file.seek(0, os.SEEK_END)
        log_file.seek(max(0, size - MOST_LOG_BYTES))
        data = log_file.read(MOST_LOG_BYTES)
    text = data.decode("utf-8", "replace")
    return text if size <= MOST_LOG_BYTES else text.partition("\n")[2]


def before_lines(parts: Sequence[Part]) -> list[str]:
    """Say what will be in a bundle."""
    return ["The bundle will hold:", *(f"  {part.name}: {part.purpose}" for part in parts), LEFT_OUT]


def after_lines(out: Path, manifest: Manifest) -> list[str]:
    """Say what is in it."""
    held = [member for member in manifest.files if not member.problem]
    missing = [f"  {member.name}: {member.problem}" for member in manifest.files if member.problem]
    size = sum(member.size_bytes for member in held)
    return [
        f"{out} holds {counted(len(held), 'file')}, {size / 1e6:.1f} MB unpacked. Look inside before you hand it on.",
        *(["Not in it:", *missing] if missing else []),
    ]
