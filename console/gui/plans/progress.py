"""How far a plan is that is being applied, from what the service says. No Qt."""

from __future__ import annotations

from typing import Literal

import msgspec

from console.api.admin import types as wire
from console.gui.plans import words

FETCHED, LOADED = 0.8, 1.0
"""How much of a stage is done when its layers are there, and when it is up."""


class Progress(msgspec.Struct, frozen=True):
    """`done` goes from 0 to 1 for each stage, `text` is the last that was said, `notes` what somebody should know."""

    state: Literal["running", "ready", "failed"] = "running"
    done: dict[int, float] = {}
    text: str = "Asking the service…"
    notes: tuple[str, ...] = ()

    @property
    def share(self) -> float:
        """How much of all is done, 0 to 1."""
        if self.state == "ready":
            return 1.0
        return sum(self.done.values()) / len(self.done) if self.done else 0.0

    def heard(self, event: wire.DeployEvent) -> Progress:
        """Return how far it is after an event."""
        if isinstance(event, wire.Planned):
            return self._now(f"{len(event.stages)} stages to load.", dict.fromkeys(range(len(event.stages)), 0.0))
        if isinstance(event, wire.Loading):
            fetching = event.phase == "fetch"
            part = FETCHED * min(1.0, event.done / event.total) if fetching and event.total else FETCHED
            text = f"{event.device_name} loads its layers."
            if fetching:
                text = f"{event.device_name} fetches its layers: {words.size(event.done)} of {words.size(event.total)}."
            return self._now(text, {**self.done, event.stage: max(part, self.done.get(event.stage, 0.0))})
        if isinstance(event, wire.StageUp):
            return self._now(f"{event.device_name} is ready.", {**self.done, event.stage: LOADED})
        if isinstance(event, wire.Note):
            return msgspec.structs.replace(self, text=event.message, notes=(*self.notes, event.message))
        if isinstance(event, wire.Ready):
            text = f"{event.model} answers by this plan: a token came through all stages in {event.probe_ms:.0f} ms."
            return msgspec.structs.replace(self, state="ready", text=text)
        return msgspec.structs.replace(self, state="failed", text=f"{event.message} What was served before stays.")

    def _now(self, text: str, done: dict[int, float]) -> Progress:
        return msgspec.structs.replace(self, text=text, done=done)
