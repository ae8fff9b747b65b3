"""What the HTTP surface sees of the rest of the console: who asks, and which models answer."""

from __future__ import annotations

from typing import Protocol

import msgspec

from console.pipeline.types import Generator


class ServedModel(msgspec.Struct, frozen=True):
    """A deployed model: `created_s` is the Unix time of its deployment.

    `ready`: a token came through all its stages since they last changed.
    """

    model_id: str
    created_s: int
    context_tokens: int
    ready: bool


class ModelDirectory(Protocol):
    """The deployed models. Calls on the service's event loop; nothing here waits."""

    def served(self) -> list[ServedModel]:
        """List the models that answer or will answer again by themselves."""
        ...

    def generator(self, model_id: str) -> Generator:
        """Return what answers for a model. Raises KeyError (never deployed) or ModelUnavailable (not now)."""
        ...
