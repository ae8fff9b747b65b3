"""Tools a model may call: what a request says of them, and how they and their results are shown to the model.

A model whose chat template takes tools gets them as they are, in its own format. To every other one they are explained
in its system message, and what it called before and what came back stand in the conversation as text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec

from console.api.http import ApiError
from console.api.openai.parameters import wrong
from console.pipeline.dialects import CALL_CLOSES, CALL_OPENS

MAX_TOOLS = 128
ToolName = Annotated[str, msgspec.Meta(pattern="^[A-Za-z0-9_.-]{1,64}$")]
Message = dict[str, Any]

EXPLAINED = """You can call tools. Each line is one of them in JSON:
{tools}

To call a tool, write exactly this, with the tool's name and its arguments as a JSON object:
{opens}
{{"name": "NAME", "arguments": {{...}}}}
{closes}
Write nothing behind a call; its result comes in the next message. If no tool is needed, just answer."""


class Function(msgspec.Struct, frozen=True):
    """What can be called. `strict` asks that arguments keep to the schema `parameters` whatever is called."""

    name: ToolName
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None

    @property
    def schema(self) -> dict[str, Any]:
        """The schema of the arguments, which are always an object."""
        return {"type": "object", **(self.parameters or {})}


class Tool(msgspec.Struct, frozen=True):
    """A tool; there is no other kind."""

    type: Literal["function"]
    function: Function


class Named(msgspec.Struct, frozen=True):
    """The name of a function."""

    name: str


class NamedTool(msgspec.Struct, frozen=True):
    """The one tool that must be called."""

    type: Literal["function"]
    function: Named


ToolChoice = Literal["none", "auto", "required"] | NamedTool


class CalledFunction(msgspec.Struct, frozen=True):
    """What is called; `arguments` is a JSON object as the model wrote it."""

    name: ToolName
    arguments: str


class ToolCall(msgspec.Struct, frozen=True):
    """A call that the model makes, or made before."""

    id: str
    function: CalledFunction
    type: Literal["function"] = "function"

    def plain(self, where: str) -> dict[str, Any]:
        """Return what chat templates take. Raises ApiError 400 naming `where`."""
        try:
            arguments = msgspec.json.decode(self.function.arguments or "{}", type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeEncodeError):
            param = f"{where}.function.arguments"
            raise wrong(param, f"The parameter {param!r} must be a JSON object as text.") from None
        return {"id": self.id, "type": "function", "function": {"name": self.function.name, "arguments": arguments}}


class CallPlan(msgspec.Struct, frozen=True):
    """What of the tools an answer may or must call; none: it must not."""

    tools: Sequence[Tool] = ()
    must: bool = False
    several: bool = True

    @property
    def is_strict(self) -> bool:
        """Whether arguments must keep to their schema even if the model is free to call nothing."""
        return any(tool.function.strict for tool in self.tools)


def plan_calls(tools: Sequence[Tool], choice: ToolChoice | None, *, several: bool) -> CallPlan:
    """Say what may be called. Raises ApiError 400."""
    names = [tool.function.name for tool in tools]
    if len(set(names)) != len(names):
        raise wrong("tools", "The parameter 'tools' names a function twice; give each its own name.")
    for place, tool in enumerate(tools):
        if tool.function.schema["type"] != "object":
            param = f"tools[{place}].function.parameters"
            raise wrong(param, f"The parameter {param!r} must be a schema of type object.")
    if choice is None or choice == "auto":
        return CallPlan(tools, several=several)
    if choice == "none":
        return CallPlan()
    chosen = [tool for tool in tools if choice == "required" or tool.function.name == choice.function.name]
    if not chosen:
        raise wrong("tool_choice", "The parameter 'tool_choice' asks for a function that 'tools' does not have.")
    return CallPlan(chosen, must=True, several=several and choice == "required")


def explained(messages: Sequence[Message], tools: Sequence[Tool]) -> list[Message]:
    """Return a conversation for a model whose template knows no tools: they, calls and results are plain text."""
    told: list[Message] = []
    for message in messages:
        if message["role"] == "tool":
            result = f"<tool_response>\n{message['content']}\n</tool_response>"
            if told and told[-1].get("results"):
                told[-1]["content"] += f"\n{result}"
            else:
                told.append({"role": "user", "content": result, "results": True})
            continue
        calls = [_as_text(call["function"]) for call in message.get("tool_calls", ())]
        told.append({"role": message["role"], "content": "\n".join(filter(None, [message["content"], *calls]))})
    for message in told:
        message.pop("results", None)
    if not tools:
        return told
    lines = "\n".join(msgspec.json.encode(_shown(tool)).decode() for tool in tools)
    text = EXPLAINED.format(tools=lines, opens=CALL_OPENS, closes=CALL_CLOSES)
    if told and told[0]["role"] == "system":
        return [{"role": "system", "content": f"{told[0]['content']}\n\n{text}"}, *told[1:]]
    return [{"role": "system", "content": text}, *told]


def native(tools: Sequence[Tool]) -> list[dict[str, Any]]:
    """Return the tools as chat templates take them."""
    return [{"type": "function", "function": _shown(tool)} for tool in tools]


def _shown(tool: Tool) -> dict[str, Any]:
    function = tool.function
    return {"name": function.name, "description": function.description or "", "parameters": function.schema}


def _as_text(function: dict[str, Any]) -> str:
    return f"{CALL_OPENS}\n{msgspec.json.encode(function).decode()}\n{CALL_CLOSES}"


def refuse_unknown_results(messages: Sequence[Message]) -> None:
    """Raise ApiError 400 for the result of a call that nobody made."""
    made: set[str] = set()
    for place, message in enumerate(messages):
        made.update(call["id"] for call in message.get("tool_calls", ()))
        if message["role"] == "tool" and message["tool_call_id"] not in made:
            param = f"messages[{place}].tool_call_id"
            message_ = f"The parameter {param!r} names no call of the messages before it."
            raise ApiError(400, message_, param=param, code="invalid_value")
