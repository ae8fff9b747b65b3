"""Where the service's log goes: standard error and `service.log` of the data folder, or a file that somebody named."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

from agent.logs.handlers import HIDER, Format, set_up, tear_down
from agent.logs.types import Level
from console.data import log_path, prepare
from console.errors import DataFolderUnusable


@contextlib.contextmanager
def logging_to(
    folder: Path, file: Path | None, level: Level, form: Format = "auto", *, database: str = ""
) -> Iterator[None]:
    """Log inside: to `file` alone, or (None) to standard error and the data folder. Raises DataFolderUnusable.

    The password of `database` is in no line, whatever quotes it.
    """
    HIDER.learn(_passwords(database))
    if file is None:
        prepare(folder)
    path = file or log_path(folder)
    try:
        set_up(level=level, form=form, file=path, stderr=file is None)
    except OSError as error:
        message = f"The log {path} cannot be written ({error.strerror}); choose another with --log-file."
        raise DataFolderUnusable(message) from None
    try:
        yield
    finally:
        tear_down()


def _passwords(url: str) -> list[str]:
    try:
        password = urlsplit(url).password or ""
    except ValueError:
        return []
    return [password, unquote(password)]
