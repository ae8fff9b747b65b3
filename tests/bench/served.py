"""What clients see of a running fleet: the rate of many answers at once, and the gaps within a streamed one."""

from __future__ import annotations

import functools
import itertools
import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

import httpx2

from console.bench.figures import percentile
from installer.loopback import Answer, LoopbackFleet

T = TypeVar("T")


class Heard(NamedTuple):
    """A streamed answer by the clock of its client: when it was asked, and when each piece of text came."""

    asked_s: float
    pieces_s: list[float]
    usage: dict[str, Any]
    parts: list[str]

    @property
    def text(self) -> str:
        return "".join(self.parts)

    @property
    def first_s(self) -> float:
        """Seconds to the first piece of text."""
        return self.pieces_s[0] - self.asked_s

    @property
    def gaps_s(self) -> list[float]:
        """Seconds between the pieces of text."""
        return [later - earlier for earlier, later in itertools.pairwise(self.pieces_s)]


def at_once(calls: Sequence[Callable[[], T]]) -> list[T]:
    """Run all calls at the same time; returns their results in order."""
    with ThreadPoolExecutor(len(calls)) as pool:
        running = [pool.submit(call) for call in calls]
        return [one.result() for one in running]


def rate(
    fleet: LoopbackFleet, models: Sequence[str], prompts: Sequence[str], tokens: int, *, ignore_eos: bool = True
) -> float:
    """Ask all prompts at once, the models in turn; returns tokens/s between the first token and the end."""

    def ask(index: int) -> Answer:
        model = models[index % len(models)]
        return fleet.chat(prompts[index], model=model, max_tokens=tokens, temperature=0, ignore_eos=ignore_eos)

    answers = at_once([functools.partial(ask, index) for index in range(len(prompts))])
    first_s = min(answer.finished_s - (answer.total_ms - answer.first_token_ms) / 1000 for answer in answers)
    return sum(answer.completion_tokens - 1 for answer in answers) / (max(a.finished_s for a in answers) - first_s)


def decode_rate(heard: Sequence[Heard]) -> float:
    """Return tokens/s over all answers while every one of them ran: from the last first token to the first end.

    Before that the rate would tell how fast the prompts of the others were read. A piece of text counts as the answer's
    share of tokens. Raises ValueError if they never all ran at once.
    """
    began_s = max(one.pieces_s[0] for one in heard)
    ended_s = min(one.pieces_s[-1] for one in heard)
    if ended_s <= began_s:
        raise ValueError("An answer ended before the last one began; ask for more tokens.")
    tokens: float = sum(
        one.usage["completion_tokens"] * sum(began_s < at_s <= ended_s for at_s in one.pieces_s) / len(one.pieces_s)
        for one in heard
    )
    return tokens / (ended_s - began_s)


def listen(
    fleet: LoopbackFleet, model: str, prompt: str, tokens: int, on_piece: Callable[[int], None] = lambda count: None
) -> Heard:
    """Stream one greedy answer of exactly `tokens`; `on_piece` hears how many pieces came so far."""
    body = {
        "model": model,
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": tokens,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
        "ignore_eos": True,
    }
    headers = {"Authorization": f"Bearer {fleet.chat_key}"}
    heard = Heard(time.perf_counter(), [], {}, [])
    url = f"{fleet.api_url}/v1/chat/completions"
    with httpx2.stream("POST", url, json=body, headers=headers, timeout=600, trust_env=False) as response:
        assert response.status_code == 200, response.read()
        for line in response.iter_lines():
            now_s = time.perf_counter()
            if not line.startswith("data: {"):
                continue
            event = json.loads(line.removeprefix("data: "))
            assert "error" not in event, event
            if event["choices"] and (piece := event["choices"][0]["delta"].get("content")):
                heard.pieces_s.append(now_s)
                heard.parts.append(piece)
                on_piece(len(heard.pieces_s))
            heard.usage.update(event.get("usage") or {})
    return heard


def milliseconds(values_s: Sequence[float]) -> dict[str, float]:
    """Return median and 95th percentile of seconds, in ms."""
    return {f"p{round(100 * share)}": round(1000 * percentile(values_s, share), 2) for share in (0.5, 0.95)}


def latencies(heard: Sequence[Heard]) -> dict[str, Any]:
    """Return what people feel: `first_token_ms` and `inter_token_ms`, each with p50 and p95."""
    return {
        "first_token_ms": milliseconds([one.first_s for one in heard]),
        "inter_token_ms": milliseconds([gap for one in heard for gap in one.gaps_s]),
    }
