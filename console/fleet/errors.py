"""Errors of the fleet: what the hub says when an agent does not do what the plan wants.

FleetError
 ├─ NoRoute           the pipeline has no route
 ├─ StageLoadFailed   an agent could not load its stage
 ├─ DeliveryFailed    a PC did not get the files of a library
 ├─ LogNotSent        a PC's log cannot be had now
 └─ LibraryNotServed  a library folder cannot be served
"""

from __future__ import annotations


class FleetError(Exception):
    """Base of the package: `str(error)` is one sentence saying what happened and what to do."""

    exit_code = 30


class NoRoute(FleetError):
    """The pipeline has no route."""


class StageLoadFailed(FleetError):
    """An agent could not load its stage.

    `code` is the agent's (`fetch`, `damaged`, `memory`, `load`, `mismatch`, `died`), or `gone` (it left meanwhile),
    `replaced` (a newer load took its place) or `stalled` (no progress).
    """

    def __init__(self, code: str, message: str, device_name: str) -> None:
        super().__init__(f"{device_name} could not load its stage: {message}")
        self.code = code
        self.message = message
        self.device_name = device_name


class DeliveryFailed(FleetError):
    """A PC did not get the files of a library; `left`: because it is not there (any more), and may come back."""

    def __init__(self, message: str, *, left: bool = False) -> None:
        super().__init__(message)
        self.left = left


class LogNotSent(FleetError):
    """A PC's log cannot be had now."""


class LibraryNotServed(FleetError):
    """A library folder cannot be served."""
