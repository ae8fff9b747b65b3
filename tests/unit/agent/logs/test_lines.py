"""agent.logs.lines and about: what one line says, and what it leaves out."""

from __future__ import annotations

import asyncio
import json
import logging
from types import ModuleType
from typing import Any, TypeVar

import pytest

from agent.logs.about import about, of_record
from agent.logs.lines import LEFT_OUT, JsonLines, TextLines
from agent.logs.secrets import Hider
from console.errors import ClientError

CANARY = "canary-prompt"

Failure = TypeVar("Failure", bound=BaseException)


def record(text: str = "It runs.", *arguments: object, error: BaseException | None = None, **extra: Any) -> Any:
    failure = None if error is None else (type(error), error, error.__traceback__)
    logger = extra.pop("logger", "console.x")
    found = logging.LogRecord(logger, logging.INFO, "f", 1, text, arguments, failure)
    found.__dict__.update(extra)
    found.created = 1.5
    return found


def as_json(line: logging.LogRecord) -> dict[str, Any]:
    text = JsonLines(Hider()).format(line)
    assert "\n" not in text
    fields: dict[str, Any] = json.loads(text)
    return fields


def raised(error: Failure, module: str = "elsewhere", cause: BaseException | None = None) -> Failure:
    """Return an error that was raised in a module of that name."""
    made = ModuleType(module)
    exec("def fail(error):\n    raise error\n", made.__dict__)
    error.__cause__ = cause
    with pytest.raises(type(error)):
        made.fail(error)
    return error


def test_a_json_line_is_one_object_with_time_level_logger_and_message() -> None:
    assert as_json(record("Two\nlines of %s", "text")) == {
        "time": "1970-01-01T00:00:01.500+00:00", "level": "info", "logger": "console.x",
        "message": "Two\nlines of text",
    }  # fmt: skip


def test_lines_say_what_they_are_about_and_a_line_of_its_own_comes_first() -> None:
    with about(request="req_1", device="d1"), about(stage=2):
        fields = as_json(record(stream=7, device="d2", other="no"))
    assert {name: fields.get(name) for name in ("request", "device", "stage", "stream", "other")} == {
        "request": "req_1", "device": "d2", "stage": 2, "stream": 7, "other": None,
    }  # fmt: skip
    assert "request" not in as_json(record())


async def test_tasks_begun_inside_say_it_too_and_those_that_outlive_it_do_not() -> None:
    async def look() -> dict[str, str | int]:
        await asyncio.sleep(0)
        return of_record(record())

    with about(request="req_1"):
        inside = asyncio.create_task(look())
        with about(fresh=True, model="small"):
            outliving = asyncio.create_task(look())
    assert await inside == {"request": "req_1"}
    assert await outliving == {"model": "small"}


def test_text_is_one_line_that_moves_no_cursor() -> None:
    with about(request="req_1"):
        line = TextLines(Hider()).format(record("a\nb\x1b[2J %s", "\u202ec"))
    assert line.endswith("INFO console.x: a b [2J  c [request=req_1]")
    assert "\n" not in line


def test_a_failure_is_told_with_its_place_and_its_cause() -> None:
    error = raised(ClientError("It failed."), cause=raised(ValueError("the cause")))
    said = as_json(record(error=error))["exception"]
    assert "ValueError: the cause\n" in said
    assert said.endswith("console.errors.ClientError: It failed.")
    assert "test_lines.py" in said


@pytest.mark.parametrize("module", ["console.pipeline.answers", "console.api.openai.routes", "console.chat.store"])
def test_what_others_say_of_a_failure_is_left_out_where_texts_pass_through(module: str) -> None:
    said = as_json(record(error=raised(ValueError(CANARY), module)))["exception"]
    assert CANARY not in said
    assert f"ValueError {LEFT_OUT}" in said


def test_what_others_say_is_left_out_while_a_request_is_answered_and_ours_is_not() -> None:
    with about(request="req_1"):
        assert CANARY not in as_json(record(error=raised(KeyError(CANARY))))["exception"]
        assert "Free space." in as_json(record(error=raised(ClientError("Free space."))))["exception"]
        assert "No space" in as_json(record(error=raised(OSError(28, "No space"))))["exception"]
    assert CANARY in as_json(record(error=raised(KeyError(CANARY))))["exception"]


def test_every_part_of_a_group_and_every_cause_is_looked_at() -> None:
    inner = raised(ValueError(CANARY), "console.pipeline.x")
    group = raised(ExceptionGroup("several", [inner, raised(KeyError("fine"))]))
    said = as_json(record(error=group))["exception"]
    assert CANARY not in said
    assert "  | KeyError: 'fine'" in said
    assert CANARY not in as_json(record(error=raised(KeyError(CANARY), cause=inner)))["exception"]


def test_a_circle_of_causes_ends() -> None:
    first, second = ValueError("1"), ValueError("2")
    first.__cause__, second.__cause__ = second, first
    assert "ValueError: 1" in as_json(record(error=first))["exception"]


async def test_asyncio_says_what_happened_and_to_which_task_alone() -> None:
    async def fail() -> None:
        raise ValueError(CANARY)

    task = asyncio.create_task(fail(), name="the task")
    await asyncio.wait([task])
    text = f"Task exception was never retrieved\nfuture: {task!r}"
    assert CANARY in text
    assert as_json(record(text, logger="asyncio"))["message"] == "Task exception was never retrieved name='the task'"
    task.exception()


def test_secrets_are_hidden_in_messages_and_failures() -> None:
    fields = as_json(record("Bearer %s", "flw-" + "a" * 12 + "-" + "b" * 43, error=raised(OSError("x://u:pass@h"))))
    assert "bbb" not in fields["message"]
    assert "pass" not in fields["exception"]


def test_a_line_without_a_surrogates_partner_can_still_be_written() -> None:
    text = JsonLines(Hider()).format(record("\udc80"))
    assert json.loads(text.encode(errors="backslashreplace"))["message"] == "\udc80"
