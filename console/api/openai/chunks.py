"""Streams of choices: what the events of /v1/chat/completions and of /v1/completions have in common. No I/O."""

from __future__ import annotations

from abc import ABC, abstractmethod

import msgspec

from console.api.openai.shapes import DONE, Identity, note, usage_body
from console.pipeline.types import Ending, Finished, Reading, Recovering, Text, Waiting


class ChoiceStream(ABC):
    """Renders events with the same id, time and model on each, and `usage: null` only when usage was asked for.

    The last event of all carries `timings`, and `details` where they were asked for; both are of the first answer.
    """

    def __init__(
        self,
        identity: Identity,
        kind: str,
        *,
        prompts: int = 1,
        answers: int = 1,
        include_usage: bool = False,
        include_details: bool = False,
    ) -> None:
        """There are `answers` to each of `prompts`; `kind` stands as `object`.

        `include_details` says that who asks wants to know how the answer comes about: an extension.
        """
        encode = msgspec.json.encode
        self._answers, self._count = answers, prompts * answers
        self._include_usage, self._include_details = include_usage, include_details
        self._finished: dict[int, Finished] = {}
        self._encoder = msgspec.json.Encoder()
        self._head = b'data: {"id":%b,"object":%b,"created":%d,"model":%b,"choices":[' % (
            encode(identity.answer_id), encode(kind), identity.created_s, encode(identity.model_id),
        )  # fmt: skip
        self._usage_null = b',"usage":null' if include_usage else b""

    @property
    def complete(self) -> bool:
        """Whether every answer has ended and the end of the stream was rendered."""
        return len(self._finished) == self._count

    def render(self, place: int, event: Text | Waiting | Reading | Recovering | Finished) -> bytes:
        """Return what an event becomes: an answer's opening, text, its reason, the stream's end, or a comment."""
        if isinstance(event, Text):
            text = self._text(place, event)
            return self._opening(place) + text if text else b""
        if isinstance(event, Finished):
            # The text that was held back may be what the answer begins with.
            left = self._left(place)
            return self._opening(place) + left + self._end(place, event)
        return note(event, details=self._include_details)

    def failed(self, place: int, envelope: bytes, reason: Ending) -> bytes:
        """Return the last event of an answer that failed: a chunk with the reason, and the error's object in it."""
        return self._last(place, reason) + b"," + envelope.removeprefix(b"{") + b"\n\n"

    def _opening(self, place: int) -> bytes:
        """Return what comes before the first text of an answer; nothing later."""
        return b""

    @abstractmethod
    def _text(self, place: int, event: Text) -> bytes:
        """Return the events of a piece of text, perhaps none."""

    def _left(self, place: int) -> bytes:
        """Return the events of what was held back until the answer ended."""
        return b""

    def _reason(self, place: int, finished: Finished) -> str:
        """Say how a complete answer ended."""
        return finished.reason

    @abstractmethod
    def _last(self, place: int, reason: str) -> bytes:
        """Return the event that ends an answer, up to the end of `choices`."""

    def _end(self, place: int, finished: Finished) -> bytes:
        self._finished[place] = finished
        last = self._last(place, self._reason(place, finished))
        if not self.complete:
            return last + self._usage_null + b"}\n\n"
        first = self._finished[0]
        timings = b',"timings":' + self._encoder.encode(first.timings)
        if self._include_details:
            timings += b',"details":' + self._encoder.encode(first.details)
        if not self._include_usage:
            return last + timings + b"}\n\n" + DONE
        usages = [self._finished[place].usage for place in range(self._count)]
        usage = self._encoder.encode(usage_body(usages, self._answers))
        return last + self._usage_null + b"}\n\n" + self._head + b'],"usage":' + usage + timings + b"}\n\n" + DONE
