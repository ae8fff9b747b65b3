"""What the lines logged from here on are about: a request, a PC, a stage, a stream. Set at the edges of tasks.

    with about(request=request_id):
        ...

Whatever is logged inside says so, also in the tasks that are begun there. A single line may say it by itself, with
`extra={"stream": 7}`, which comes before what is around it.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from contextvars import ContextVar

NAMES = ("request", "device", "model", "pipeline", "stage", "stream")

_about: ContextVar[dict[str, str | int]] = ContextVar("about", default={})  # noqa: B039 - never changed in place


@contextlib.contextmanager
def about(
    *,
    fresh: bool = False,
    request: str | None = None,
    device: str | None = None,
    model: str | None = None,
    pipeline: int | None = None,
    stage: int | None = None,
    stream: int | None = None,
) -> Iterator[None]:
    """Let every line inside say these, beside what is said already, or (`fresh`: it outlives its cause) instead."""
    given = (request, device, model, pipeline, stage, stream)
    said = {name: value for name, value in zip(NAMES, given, strict=True) if value is not None}
    token = _about.set(said if fresh else {**_about.get(), **said})
    try:
        yield
    finally:
        _about.reset(token)


def of_record(record: logging.LogRecord) -> dict[str, str | int]:
    """Return what a record is about. Called where it was logged: it looks at the running task."""
    own = {name: value for name in NAMES if isinstance(value := getattr(record, name, None), str | int)}
    return {**_about.get(), **own}
