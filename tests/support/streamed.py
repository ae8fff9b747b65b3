"""A streamed answer as its client sees it: every token with the time it came, notes, and how it ended.

Log-probabilities are asked for, because only they say where one token ends and the next begins.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import Any, NamedTuple

import httpx2
import msgspec

TIMEOUT_S = 120.0
"""A silence that is longer than that is none that somebody waits for."""
QUEUE_COMMENT = "waiting"


class Question(NamedTuple):
    """What is asked; the same question gets the same answer in `exact`, sampled or not."""

    prompt: str
    tokens: int
    temperature: float = 0.0
    seed: int = 0


@dataclass
class Heard:
    """An answer. Times are seconds of the monotonic clock; a `token` is its bytes."""

    asked_s: float = 0.0
    ended_s: float = 0.0
    tokens: list[bytes] = field(default_factory=list)
    came_s: list[float] = field(default_factory=list)
    text: str = ""
    notes: list[tuple[float, str]] = field(default_factory=list)
    finish_reason: str = ""
    problem: str = ""
    """Why there is no whole answer: the error's code and sentence."""
    prompt_tokens: int = 0

    def silence_s(self, since_s: float) -> float:
        """Return the longest silence from a moment on, counted from the last token before; infinite when cut short.

        Before the first token it is counted from the moment itself: nobody can tell it from reading the prompt.
        """
        if self.problem:
            return math.inf
        before = [came_s for came_s in self.came_s if came_s <= since_s]
        times = [before[-1] if before else since_s, *(came_s for came_s in self.came_s if came_s > since_s)]
        return max((later - earlier for earlier, later in itertools.pairwise(times)), default=0.0)

    def heard_by(self, moment_s: float) -> int:
        """Count the tokens that had come by a moment."""
        return sum(came_s <= moment_s for came_s in self.came_s)


class Difference(NamedTuple):
    """How an answer differs from the one that nobody disturbed, in tokens."""

    lost: int
    added: int


def difference(heard: Heard, expected: Heard) -> Difference:
    """Compare two answers token by token: what is missing, and what is there that should not be."""
    lost = added = 0
    for _, a, b, c, d in SequenceMatcher(None, expected.tokens, heard.tokens, autojunk=False).get_opcodes():
        if expected.tokens[a:b] != heard.tokens[c:d]:
            lost, added = lost + b - a, added + d - c
    return Difference(lost, added)


def stream(
    url: str,
    key: str,
    model: str,
    question: Question,
    on_token: Callable[[int], None] = lambda count: None,
    heard: Heard | None = None,
) -> Heard:
    """Ask and listen to the end; never raises for an answer that fails. `on_token` hears how many came so far.

    `heard` is filled while it comes, for others to look at.
    """
    heard = heard or Heard()
    heard.asked_s = time.monotonic()
    try:
        with httpx2.stream(
            "POST",
            f"{url}/v1/chat/completions",
            json=_body(model, question),
            headers={"Authorization": f"Bearer {key}"},
            timeout=TIMEOUT_S,
            trust_env=False,
        ) as response:
            if response.status_code != httpx2.codes.OK:
                response.read()
                heard.problem = f"{response.status_code}: {response.text[:300]}"
            else:
                for line in response.iter_lines():
                    _take(heard, line, on_token)
    except httpx2.HTTPError as error:
        heard.problem = f"{type(error).__name__}: {error}"
    heard.ended_s = time.monotonic()
    if not heard.problem and not heard.finish_reason:
        heard.problem = "The stream ended without a reason."
    return heard


def _take(heard: Heard, line: str, on_token: Callable[[int], None]) -> None:
    now_s = time.monotonic()
    if line.startswith(":"):
        note = line.removeprefix(":").strip()
        if note and not note.startswith(QUEUE_COMMENT):
            heard.notes.append((now_s, note))
        return
    if not line.startswith("data: {"):
        return
    event = msgspec.json.decode(line.removeprefix("data: "))
    if "error" in event:
        heard.problem = f"{event['error'].get('code')}: {event['error'].get('message')}"
        return
    heard.prompt_tokens = (event.get("usage") or {}).get("prompt_tokens", heard.prompt_tokens)
    for choice in event["choices"]:
        heard.text += choice["delta"].get("content") or ""
        heard.finish_reason = choice.get("finish_reason") or heard.finish_reason
        entries = (choice.get("logprobs") or {}).get("content") or []
        for entry in entries:
            heard.tokens.append(bytes(entry["bytes"]))
            heard.came_s.append(now_s)
        if entries:
            on_token(len(heard.tokens))


def _body(model: str, question: Question) -> dict[str, Any]:
    return {
        "model": model,
        "messages": [{"role": "user", "content": question.prompt}],
        "max_tokens": question.tokens,
        "temperature": question.temperature,
        "seed": question.seed,
        "logprobs": True,
        "stream": True,
        "stream_options": {"include_usage": True},
        "ignore_eos": True,
    }
