"""What the clients of a soak ask, in every form the API has, and what they hear."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

PATHS = {"chat": "/v1/chat/completions", "completion": "/v1/completions", "response": "/v1/responses"}
SCHEMA = {
    "type": "object",
    "properties": {"name": {"enum": ["anna", "bert"]}, "years": {"type": "integer", "minimum": 0, "maximum": 120}},
    "required": ["name", "years"],
    "additionalProperties": False,
}
FORMAT = {"type": "json_schema", "json_schema": {"name": "person", "schema": SCHEMA}}
"""What an answer in JSON keeps to."""


class Question(NamedTuple):
    """A request, whole or streamed; the same one gets the same answer each time."""

    kind: str
    fields: dict[str, Any]

    @property
    def path(self) -> str:
        """Where it is asked."""
        return PATHS[self.kind]

    def body(self, model: str, **more: Any) -> bytes:
        """Return its JSON."""
        return msgspec.json.encode({"model": model} | self.fields | more)


@dataclass
class Said:
    """An answer as far as it came: texts and endings by their index, and the code of an error."""

    texts: defaultdict[int, str] = field(default_factory=lambda: defaultdict(str))
    endings: dict[int, str] = field(default_factory=dict)
    name: str = ""
    """The answer's id."""
    error: str = ""
    is_whole: bool = False

    def take(self, event: bytes) -> None:
        """Read one server-sent event."""
        data = b"\n".join(line.removeprefix(b"data: ") for line in event.split(b"\n") if line.startswith(b"data: "))
        if data == b"[DONE]":
            self.is_whole = True
        elif data:
            self._take(msgspec.json.decode(data))

    def _take(self, body: dict[str, Any]) -> None:
        error = body.get("error")
        self.error = self.error or (error["code"] if error else "")
        self.name = self.name or body.get("id") or body.get("response", {}).get("id", "")
        for choice in body.get("choices", []):
            place = choice["index"]
            self.texts[place] += choice.get("text") or choice.get("delta", {}).get("content") or ""
            if choice["finish_reason"]:
                self.endings[place] = choice["finish_reason"]
        if body.get("type") == "response.output_text.delta":
            self.texts[0] += body["delta"]
        if body.get("type") in {"response.completed", "response.incomplete"}:
            self.endings[0] = body["response"]["status"]
            self.is_whole = True

    def take_whole(self, data: bytes) -> None:
        """Read the body of an answer that is not streamed."""
        body = msgspec.json.decode(data)
        if body.get("error"):
            self.error = body["error"]["code"]
            return
        self.is_whole = True
        for choice in body.get("choices", []):
            text = choice["text"] if "text" in choice else choice["message"]["content"]
            self.texts[choice["index"]], self.endings[choice["index"]] = text, choice["finish_reason"]
        if body.get("object") == "response":
            self.texts[0] = "".join(part["text"] for item in body["output"] for part in item.get("content", []))
            self.endings[0] = body["status"]

    def difference(self, alone: Said) -> str:
        """Say how it differs from the whole answer that was given alone; empty: it does not, as far as it came."""
        if self.is_whole and (dict(self.texts), self.endings) != (dict(alone.texts), alone.endings):
            return f"{dict(self.texts)} {self.endings} instead of {dict(alone.texts)} {alone.endings}"
        for place, text in self.texts.items():
            if not alone.texts[place].startswith(text):
                return f"{text!r} is no beginning of {alone.texts[place]!r}"
        return ""


def questions() -> list[Question]:
    """List them: greedy and sampled, one answer and several, short and long, free and in a form."""
    asked = [Question("chat", said(f"tell me of number {seed}", seed, tokens=16 + 8 * seed)) for seed in range(4)]
    asked += [
        Question("chat", said("tell me two things", 7, tokens=20) | {"n": 2}),
        Question("chat", said("a long one " * 12, 8, tokens=24)),
        Question("chat", said("how sure are you", 9, tokens=16) | {"logprobs": True, "top_logprobs": 4}),
        Question("chat", said("never the same", 10, tokens=24) | {"presence_penalty": 1.0, "logit_bias": {"3": -50}}),
        Question("chat", said("stop soon", 12, tokens=40) | {"stop": ["a", "e", "s", "t"]}),
        Question("chat", said("who is it", 11, tokens=40) | {"response_format": FORMAT}),
        Question("completion", {"prompt": "once upon a time", "max_tokens": 32, "temperature": 0}),
        Question("completion", {"prompt": ["one and", "two and"], "max_tokens": 16, "temperature": 0.9, "seed": 5}),
        Question("response", {"input": "what is a field", "max_output_tokens": 32, "temperature": 0}),
    ]
    return asked


def said(text: str, seed: int, *, tokens: int) -> dict[str, Any]:
    """Return a conversation of one message; every second one is sampled."""
    sampling = {"temperature": 0.9 * (seed % 2), "seed": seed}
    return {"messages": [{"role": "user", "content": text}], "max_tokens": tokens} | sampling


LONG = Question(
    "chat", said("go on and on", 0, tokens=160) | {"logprobs": True, "top_logprobs": 20, "ignore_eos": True}
)
"""So much that no buffer takes all of it: a client that does not read it makes the server wait."""
