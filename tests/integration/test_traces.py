"""Traces of answers, sent to a collector of the test over a real socket by OpenTelemetry's own exporter."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx2
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from agent.stage.types import Epoch
from console.api.app import build_app
from console.api.auth import Gate
from console.api.openai.routes import OpenAIRoutes
from console.api.quotas import Quotas
from console.cli import main
from console.errors import TelemetryUnusable
from console.pipeline.coordinator import Coordinator
from console.pipeline.types import StageInfo
from console.service import ConsoleService
from console.telemetry import exporting
from console.telemetry.exporting import OtlpTracer, traces_url
from console.telemetry.opening import open_tracer
from console.telemetry.spans import request_attributes
from console.telemetry.tracing import TracedRequest
from tests.conftest import ExpectLogs
from tests.support.api import CHAT_KEY, Counted, Keys, Models, serving
from tests.support.patience import PATIENCE_S, until
from tests.support.toy_stages import Stages, make_coordinator

CHAT = "/v1/chat/completions"
QUESTION, SAID = "a very private question", "a very private answer"
BODY: dict[str, Any] = {"model": "toy", "messages": [{"role": "user", "content": QUESTION}]}
TRACE, ABOVE = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


class Collector:
    """Keeps what it is sent."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.headers: list[Mapping[str, str]] = []

    async def take(self, request: Request) -> Response:
        self.bodies.append(await request.body())
        self.headers.append(request.headers)
        return Response(b"", media_type="application/x-protobuf")

    def spans(self) -> list[Span]:
        sent = [ExportTraceServiceRequest.FromString(body) for body in self.bodies]
        return [
            span for one in sent for resource in one.resource_spans for scope in resource.scope_spans
            for span in scope.spans
        ]  # fmt: skip

    def requests(self) -> list[Span]:
        return [span for span in self.spans() if span.kind == Span.SPAN_KIND_SERVER]

    def below(self, above: Span) -> list[Span]:
        return sorted(
            (span for span in self.spans() if span.parent_span_id == above.span_id),
            key=lambda span: span.start_time_unix_nano,
        )


class Traced:
    """A console's API before a toy pipeline, traced; and the collector."""

    def __init__(self, http: httpx2.AsyncClient, tracer: OtlpTracer, coordinator: Coordinator, stages: Stages) -> None:
        self.http, self.tracer, self.coordinator, self.stages = http, tracer, coordinator, stages
        self.collector = Collector()

    async def ask(self, headers: Mapping[str, str] | None = None, **fields: Any) -> httpx2.Response:
        return await self.http.post(CHAT, json=BODY | fields, headers=headers)


@pytest.fixture
async def traced() -> AsyncIterator[Traced]:
    collector = Collector()
    stages = Stages(answers={QUESTION: SAID})
    coordinator = make_coordinator(stages)
    async with contextlib.AsyncExitStack() as stack:
        where = await stack.enter_async_context(
            serving(build_app([Route("/v1/traces", collector.take, methods=["POST"])]))
        )
        tracer = open_tracer(where, "9.9")
        stack.push_async_callback(tracer.close)
        coordinator.on_ended = tracer.answered
        stack.push_async_callback(coordinator.close)
        routes = OpenAIRoutes(Models(coordinator), Gate(Keys()), Quotas(Counted()), tracer).routes()
        url = await stack.enter_async_context(serving(build_app(routes)))
        headers = {"Authorization": f"Bearer {CHAT_KEY}"}
        http = await stack.enter_async_context(httpx2.AsyncClient(base_url=url, headers=headers, timeout=PATIENCE_S))
        made = Traced(http, tracer, coordinator, stages)
        made.collector = collector
        yield made


def attributes(span: Span) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value") or "string_value") for one in span.attributes}


async def test_an_answer_is_one_span_with_its_phases_below_it_and_no_word_of_it(traced: Traced) -> None:
    answer = await traced.ask({"x-request-id": "req-1", "traceparent": f"00-{TRACE}-{ABOVE}-01"})
    assert answer.json()["choices"][0]["message"]["content"] == SAID
    await traced.tracer.close()
    (request,) = traced.collector.requests()
    assert (request.name, request.trace_id.hex(), request.parent_span_id.hex()) == (f"POST {CHAT}", TRACE, ABOVE)
    said = attributes(request)
    assert (said["fallow.request_id"], said["gen_ai.request.model"], said["fallow.outcome"]) == ("req-1", "toy", "stop")
    assert said["gen_ai.usage.output_tokens"] == len(SAID) + 1
    phases = traced.collector.below(request)
    assert [phase.name for phase in phases] == ["queue", "prefill", "decode"]
    assert {phase.trace_id.hex() for phase in phases} == {TRACE}
    for earlier, later in pairwise(phases):
        assert abs(earlier.end_time_unix_nano - later.start_time_unix_nano) <= 1
    # Both ends are told by the same clock, read a moment apart.
    assert phases[-1].end_time_unix_nano <= request.end_time_unix_nano
    assert attributes(phases[-1])["fallow.pcs"].values[0].string_value == "pc-0"
    for body in traced.collector.bodies:
        assert b"private" not in body
        assert CHAT_KEY.encode() not in body
    resource = ExportTraceServiceRequest.FromString(traced.collector.bodies[0]).resource_spans[0].resource
    named = {one.key: one.value.string_value for one in resource.attributes}
    assert (named["service.name"], named["service.version"]) == ("fallow-console", "9.9")


@pytest.mark.parametrize(
    ("route", "asked", "operation", "api"),
    [
        (CHAT, BODY, "chat", "chat_completions"),
        ("/v1/completions", {"model": "toy", "prompt": "Once"}, "text_completion", None),
        ("/v1/responses", {"model": "toy", "input": QUESTION}, "chat", "responses"),
    ],
)
async def test_every_endpoint_is_named_as_the_conventions_name_it(
    traced: Traced, route: str, asked: dict[str, Any], operation: str, api: str | None
) -> None:
    answer = await traced.http.post(route, json=asked)
    assert answer.json()["timings"]["parts"], answer.text
    await traced.tracer.close()
    (request,) = traced.collector.requests()
    said = attributes(request)
    assert (said["http.route"], said["gen_ai.operation.name"], said.get("openai.api.type")) == (route, operation, api)
    assert (said["gen_ai.provider.name"], said["gen_ai.request.model"]) == ("fallow", "toy")
    assert [one.string_value for one in said["gen_ai.response.finish_reasons"].values] == [said["fallow.outcome"]]
    assert "gen_ai.request.choice.count" not in said, "it is one"
    decode = traced.collector.below(request)[-1]
    assert {"fallow.compute_ms", "fallow.link_ms", "fallow.turn_ms"} <= attributes(decode).keys()


def test_every_endpoint_that_answers_has_a_name_in_traces() -> None:
    endpoints = OpenAIRoutes(Models(), Gate(Keys()), Quotas(Counted())).endpoints()
    for path in [endpoint.path for endpoint in endpoints if endpoint.streams]:
        named = request_attributes(TracedRequest(1, "POST", path, "req-1", "toy", {}))
        assert named["gen_ai.operation.name"] in {"chat", "text_completion"}


def test_a_path_that_is_nearly_an_endpoints_has_no_name_and_an_answer_all_the_same() -> None:
    """Routes match a path with a line break behind it, too."""
    assert "gen_ai.operation.name" not in request_attributes(
        TracedRequest(1, "POST", "/v1/chat/completions\n", "req-1", "toy", {})
    )


async def test_without_a_trace_of_the_client_or_with_a_broken_one_there_is_a_new_one(traced: Traced) -> None:
    for header in ({}, {"traceparent": f"00-{'0' * 32}-{ABOVE}-01"}, {"traceparent": "x" * 9000}):
        assert (await traced.ask(header)).status_code == 200
    await traced.tracer.close()
    requests = traced.collector.requests()
    assert len({request.trace_id for request in requests}) == 3
    assert {request.parent_span_id for request in requests} == {b""}


async def test_a_client_that_does_not_record_its_trace_has_nothing_sent(traced: Traced) -> None:
    assert (await traced.ask({"traceparent": f"00-{TRACE}-{ABOVE}-00"})).status_code == 200
    await traced.tracer.close()
    assert traced.collector.bodies == []


async def test_a_loss_is_a_phase_of_its_own(traced: Traced) -> None:
    traced.stages.paused = True
    asking = asyncio.create_task(traced.ask())
    await until(lambda: len(traced.stages.held) == 1)
    traced.stages.reply()
    await asyncio.sleep(0)  # what becomes of a token is told in the next turn of the loop
    traced.coordinator.suspend("ann left.")
    others = Stages(answers={QUESTION: SAID})
    others.coordinator = traced.coordinator
    infos = [StageInfo(f"new-{i}", f"spare-{i}", 10 * i, 10 * i + 10, "paged", True) for i in range(2)]
    traced.coordinator.resume(stages=infos, epoch=Epoch(6), kv_tokens=4096, submit=others.submit)
    assert (await asking).json()["choices"][0]["message"]["content"] == SAID
    await traced.tracer.close()
    (request,) = traced.collector.requests()
    names = [phase.name for phase in traced.collector.below(request)]
    assert names == ["queue", "prefill", "decode", "recovery", "decode"]


async def test_each_of_several_answers_has_its_phases(traced: Traced) -> None:
    assert (await traced.ask(n=2)).status_code == 200
    await traced.tracer.close()
    (request,) = traced.collector.requests()
    said = attributes(request)
    assert (said["gen_ai.request.choice.count"], len(said["gen_ai.response.finish_reasons"].values)) == (2, 2)
    decodes = [span for span in traced.collector.below(request) if span.name == "decode"]
    assert sorted(attributes(span)["fallow.answer"] for span in decodes) == [0, 1]


async def test_an_answer_that_fails_is_an_error_and_one_that_nobody_waits_for_is_not(
    traced: Traced, expected_logs: ExpectLogs
) -> None:
    expected_logs("console.pipeline", "stops")
    traced.stages.paused = True
    leaving = asyncio.create_task(traced.ask())
    await until(lambda: len(traced.stages.held) == 1)
    leaving.cancel()
    await asyncio.gather(leaving, return_exceptions=True)
    await until(lambda: traced.coordinator.load == (0, 0))
    failing = asyncio.create_task(traced.ask())
    await until(lambda: traced.coordinator.load != (0, 0))
    traced.coordinator.stage_lost("ann left.")
    assert (await failing).status_code == 503
    await traced.tracer.close()
    left, failed = traced.collector.requests()
    assert (attributes(left)["fallow.outcome"], left.status.code) == ("cancelled", Status.STATUS_CODE_UNSET)
    assert (attributes(failed)["fallow.outcome"], failed.status.code) == ("stage_lost", Status.STATUS_CODE_ERROR)
    assert (attributes(failed)["error.type"], attributes(left).get("error.type")) == ("stage_lost", None)


async def test_a_collector_that_is_away_disturbs_nobody(
    monkeypatch: pytest.MonkeyPatch, expected_logs: ExpectLogs
) -> None:
    expected_logs("opentelemetry", "")
    monkeypatch.setattr(exporting, "SEND_S", 0.2)
    coordinator = make_coordinator(Stages(answers={QUESTION: SAID}))
    tracer = open_tracer("http://127.0.0.1:9", "1")
    coordinator.on_ended = tracer.answered
    routes = OpenAIRoutes(Models(coordinator), Gate(Keys()), Quotas(Counted()), tracer).routes()
    async with serving(build_app(routes)) as url, httpx2.AsyncClient(base_url=url, timeout=PATIENCE_S) as http:
        answer = await http.post(CHAT, json=BODY, headers={"Authorization": f"Bearer {CHAT_KEY}"})
    assert answer.json()["choices"][0]["message"]["content"] == SAID
    await tracer.close()


def test_a_missing_library_is_one_sentence_and_an_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(sys.modules, "console.telemetry.exporting")
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    # Without what `serve` sets for the whole process.
    monkeypatch.setattr("console.serving.serve", lambda settings, **_: asyncio.run(ConsoleService(settings).start()))
    assert main(["--data", str(tmp_path / "data"), "serve", "--otlp-endpoint", "http://collector:4318"]) == 2
    said = capsys.readouterr().err.strip()
    assert said.splitlines()[-1].startswith("fallow-console: Traces need the extra `telemetry`; install it with")
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    "endpoint", ["collector:4318", "ftp://collector", "http://", "http://me:secret@collector:4318"]
)
def test_what_is_no_address_of_a_collector_is_refused(endpoint: str) -> None:
    with pytest.raises(TelemetryUnusable) as refused:
        open_tracer(endpoint, "1")
    assert "secret" not in str(refused.value)


def test_an_address_without_a_path_has_the_one_that_is_prescribed() -> None:
    assert traces_url("http://collector:4318") == "http://collector:4318/v1/traces"
    assert traces_url("http://collector:4318/") == "http://collector:4318/v1/traces"
    assert traces_url("https://x/otlp/v1/traces") == "https://x/otlp/v1/traces"
